"""One batch of CIFAR-10: n labels, and n×3072 pixels (red, green and blue plane of each image).

A file of the official binary version has a record per image: a label byte and 3,072 pixel bytes. A file of
the Python version is a pickle, read by an unpickler that can only make arrays and plain containers.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from fedcap.data.files import corrupted, refuse_web_page

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PIXELS = 3 * 32 * 32
OFFICIAL = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
"""The MD5 values of the official files, binary and Python version."""
BATCHES = [name for name in OFFICIAL if name.endswith(".bin")]


def read_batch(path: Path, verify: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and pixels of a batch; with `verify`, refuse one that is not the official one."""
    refuse_web_page(path, "cifar10")
    content = path.read_bytes()
    if verify and hashlib.md5(content, usedforsecurity=False).hexdigest() != OFFICIAL[path.name]:
        raise corrupted(path, "its MD5 is not the official one", "cifar10")
    labels, pixels = _from_binary(path, content) if path.suffix else _from_pickle(path, content)
    if not len(labels) or labels.min() < 0 or labels.max() >= len(CLASSES):
        raise corrupted(path, "it has labels outside 0 to 9" if len(labels) else "it is empty", "cifar10")
    return labels, pixels


def _from_binary(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    if len(content) % (1 + PIXELS):
        raise corrupted(path, f"its {len(content)} bytes are not whole records of {1 + PIXELS}", "cifar10")
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    return records[:, 0], records[:, 1:]


def _from_pickle(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
        pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    except Exception as error:
        raise corrupted(
            path, f"it is not a batch of CIFAR-10's Python version ({error})", "cifar10"
        ) from None
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), PIXELS) or labels.dtype.kind not in "iu":
        raise corrupted(path, f"its arrays are not n×{PIXELS} bytes and n labels", "cifar10")
    return labels, pixels


class PlainUnpickler(pickle.Unpickler):
    """Loads arrays and plain containers, and refuses anything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the three things that a pickled array names, from any module of NumPy."""
        if module.split(".")[0] == "numpy":
            allowed = {
                "ndarray": np.ndarray,
                "dtype": np.dtype,
                "_reconstruct": np.empty(0).__reduce__()[0],
            }
            if name in allowed:
                return allowed[name]
        if (module, name) == ("_codecs", "encode"):  # how bytes are written by protocol 2
            return lambda text, encoding: text.encode("latin1")
        raise pickle.UnpicklingError(f"it would load {module}.{name}")
