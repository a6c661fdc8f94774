"""8,608 handwritten characters in EMNIST's 62 classes and set-up: a stand-in where EMNIST cannot be had.

Other writers, cleaner strokes, fewer samples: results on it stand under its own name. The paper's three
groups share what there is, about 86 characters a client; there are fewer digits, so clients of that group
have about 40, the others about 110. So few samples make few steps a round, hence a learning rate of 0.05:
at EMNIST's 0.01, FedCAP under IPM reaches 9 % in 40 rounds, and no update comes near its `t_norm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedcap.data.base import Amount, Dataset, Progress, registry
from fedcap.data.cache import cached, hashes
from fedcap.data.emnist import CLASSES, Emnist
from fedcap.data.files import corrupted, find, install_folder, missing
from fedcap.data.npz import read_npz
from fedcap.registry import InputError

FILE = "handwritten62.npz"


@registry.register("handwritten62")
@dataclass(frozen=True)
class Handwritten62(Emnist):
    """8,608 handwritten characters in the set-up of EMNIST, from handwritten62.npz."""

    defaults: ClassVar[Mapping[str, Any]] = {
        **Emnist.defaults,
        "training": {**Emnist.defaults["training"], "lr": 0.05},
    }

    samples: Amount = "all"

    def files(self) -> list[Path]:
        """Return the one file."""
        return find([FILE], ("",))

    def load(self) -> Dataset:
        """Return all characters as 1×28×28 bytes."""
        files = self.files()
        if not files:
            raise missing("handwritten62", FILE, fetch=False)
        return cached("handwritten62", {"files": hashes(files)}, lambda: _decode(files[0]))

    def install(self, folder: Path, progress: Progress) -> None:
        """Say that there is nowhere to fetch it from."""
        raise InputError(f"handwritten62 has no official source: put {FILE} into {install_folder()}")


def _decode(path: Path) -> Dataset:
    dataset = read_npz(path)
    if tuple(dataset.samples.x.shape[1:]) != (1, 28, 28) or dataset.classes != len(CLASSES):
        raise corrupted(path, "it does not hold characters of 28×28 in 62 classes")
    return Dataset(dataset.samples, CLASSES)
