"""EMNIST ByClass (Cohen et al., 2017): 814,255 handwritten characters of 28×28 in 62 classes.

The official idx files, gzipped or not, store every image transposed. Digits, capital letters and small
letters are the three groups of FedCAP's partition.
"""

from __future__ import annotations

import gzip
import string
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from fedcap.data.base import Amount, Count, Dataset, Progress, Source, registry
from fedcap.data.cache import cached, hashes
from fedcap.data.fetch import Download, fetch_archive
from fedcap.data.files import corrupted_error, find, missing_error, refuse_web_page
from fedcap.errors import InputError
from fedcap.state import Samples

CLASSES = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
_PARTS = ("train", "test")
_FOLDERS = ("emnist", "EMNIST", "gzip", "emnist/gzip", "")
ARCHIVE = Download(
    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip", "md5:58c8d27c78d21e728a6bc7b3cc06412e"
)


def _names(part: str) -> tuple[str, str]:
    return (
        f"emnist-byclass-{part}-images-idx3-ubyte",
        f"emnist-byclass-{part}-labels-idx1-ubyte",
    )


@registry.register("emnist")
@dataclass(frozen=True)
class Emnist(Source):
    """814,255 handwritten characters of 28×28 in 62 classes; 100 clients with 300 each, in 3 groups."""

    model: ClassVar[str] = "cnn-emnist"
    groups: ClassVar[Mapping[str, Any]] = {
        "groups": (tuple(range(10)), tuple(range(10, 36)), tuple(range(36, 62)))
    }
    defaults: ClassVar[Mapping[str, Any]] = {
        "rounds": 100,
        "participation": 0.2,
        "training": {"lr": 0.01, "epochs": 5, "batch_size": 10, "shuffle": False, "drop_last": True},
    }

    partition: str | dict[str, Any] = "groups"
    clients: Count = 100
    samples: Amount = 300

    def files(self) -> list[Path]:
        """Return the image file and the label file of each part that has both files."""
        pairs = [[_present(name) for name in _names(part)] for part in _PARTS]
        return [path for pair in pairs if all(pair) for path in pair if path is not None]

    def absent(self) -> InputError:
        """Return the error for missing files."""
        return missing_error("emnist", f"{_names('train')[0]}.gz and the three files like it")

    def load(self) -> Dataset:
        """Return all characters, upright, as 1×28×28 bytes."""
        files = self.present()
        return cached("emnist", {"files": hashes(files)}, lambda: _decode(files))

    def install(self, folder: Path, progress: Progress) -> None:
        """Fetch the official archive and unpack the four files of ByClass."""
        wanted = [f"{name}.gz" for part in _PARTS for name in _names(part)]
        fetch_archive("emnist", ARCHIVE, folder / "emnist", wanted, progress)


def _present(name: str) -> Path | None:
    found = find([name], _FOLDERS) or find([f"{name}.gz"], _FOLDERS)
    return found[0] if found else None


def _decode(files: list[Path]) -> Dataset:
    x, y = [], []
    for images, labels in zip(files[::2], files[1::2], strict=True):
        x.append(_read_idx(images, 3).transpose(0, 2, 1))
        y.append(_read_idx(labels, 1))
        if len(x[-1]) != len(y[-1]):
            raise corrupted_error(labels, f"it has {len(y[-1])} labels for {len(x[-1])} images", "emnist")
        if x[-1].shape[1:] != (28, 28):
            raise corrupted_error(images, "its images are not 28×28", "emnist")
        if y[-1].max(initial=0) >= len(CLASSES):
            raise corrupted_error(labels, f"it has labels over {len(CLASSES) - 1}", "emnist")
    notes: tuple[str, ...] = ()
    if len(files) < 2 * len(_PARTS):
        notes = (
            f"emnist: one of 2 parts found in {files[0].parent}: using its {sum(map(len, y)):,} characters",
        )
    pixels = torch.from_numpy(np.concatenate(x))[:, None]
    return Dataset(
        Samples(pixels, torch.from_numpy(np.concatenate(y).astype(np.int64))), CLASSES, notes=notes
    )


def _read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Read an idx file of bytes: a magic number, the length of each dimension, and the values."""
    refuse_web_page(path, "emnist")
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise corrupted_error(path, f"it cannot be unzipped ({error})", "emnist") from None
    header = np.frombuffer(content[: 4 * (1 + dimensions)], ">u4")
    if len(header) != 1 + dimensions or header[0] != 0x0800 + dimensions:
        raise corrupted_error(path, f"it is not an idx file of bytes in {dimensions} dimensions", "emnist")
    shape = tuple(int(length) for length in header[1:])
    values = np.frombuffer(content, np.uint8, offset=4 * (1 + dimensions))
    if len(values) != np.prod(shape):
        raise corrupted_error(
            path, f"it has {len(values)} values, and its header says {np.prod(shape)}", "emnist"
        )
    return values.reshape(shape)
