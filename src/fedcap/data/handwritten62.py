"""8,608 handwritten characters in EMNIST's 62 classes and experiments, for use where EMNIST is not available.

It has other writers, cleaner strokes and fewer samples, so its results are reported under its own name. All
samples are partitioned among the paper's three groups: a client has about 86, in the group of digits about
40, in the other two about 110. A client takes few steps per round, so the learning rate is 0.05: at EMNIST's
0.01, FedCAP under IPM reaches 9 % accuracy in 40 rounds, and no update is as long as `t_norm`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedcap.data.base import Amount, Dataset, Progress, registry
from fedcap.data.cache import cached, hashes
from fedcap.data.emnist import CLASSES, Emnist
from fedcap.data.files import find, install_folder, missing_error, unusable_error
from fedcap.data.npz import read_npz
from fedcap.errors import InputError

_FILE = "handwritten62.npz"


@registry.register("handwritten62")
@dataclass(frozen=True)
class Handwritten62(Emnist):
    """8,608 handwritten characters with the settings of EMNIST, from handwritten62.npz."""

    defaults: ClassVar[Mapping[str, Any]] = {
        **Emnist.defaults,
        "training": {**Emnist.defaults["training"], "lr": 0.05},
    }

    samples: Amount = "all"

    def files(self) -> list[Path]:
        """Return the one file."""
        return find([_FILE], ("",))

    def absent(self) -> InputError:
        """Return the error for the missing file."""
        return missing_error("handwritten62", _FILE, fetch=False)

    def load(self) -> Dataset:
        """Return all characters as 1×28×28 bytes."""
        files = self.present()
        return cached("handwritten62", {"files": hashes(files)}, lambda: _decode(files[0]))

    def install(self, folder: Path, progress: Progress) -> None:
        """Raise an `InputError`: there is no official source."""
        raise InputError(
            f"handwritten62 has no official source: put {_FILE} into {install_folder()}", code="cannot-fetch"
        )


def _decode(path: Path) -> Dataset:
    dataset = read_npz(path)
    if tuple(dataset.samples.x.shape[1:]) != (1, 28, 28) or dataset.classes != len(CLASSES):
        raise unusable_error(path, "it does not hold characters of 28×28 in 62 classes")
    return Dataset(dataset.samples, CLASSES)
