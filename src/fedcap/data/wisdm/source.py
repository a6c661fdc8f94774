"""WISDM v1.1 (Kwapisz, Weiss, Moore, 2010): windows of 200 readings without overlap, and a client per person.

A window is 3×1×200 (the axes x, y, z in m/s²) and its label is the activity of most of its readings. Readings
are taken in order of time within each person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from fedcap.data.base import Count, Dataset, FederatedData, Progress, Source, registry
from fedcap.data.cache import cached, hashes
from fedcap.data.fetch import Download, Unreachable, fetch_archive
from fedcap.data.files import find, missing
from fedcap.data.wisdm.readings import CLASSES, read_readings
from fedcap.errors import InputError
from fedcap.state import Samples

FOLDER, FILE = "WISDM_ar_v1.1", "WISDM_ar_v1.1_raw.txt"
ARCHIVE = Download("https://www.cis.fordham.edu/wisdm/includes/datasets/latest/WISDM_ar_latest.tar.gz")


@registry.register("wisdm")
@dataclass(frozen=True)
class Wisdm(Source):
    """Phone accelerometers of 36 people in 6 activities, windows of 200 readings; a client per person."""

    model: ClassVar[str] = "cnn-wisdm"
    defaults: ClassVar[Mapping[str, Any]] = {
        "rounds": 100,
        "training": {"lr": 0.01, "epochs": 5, "batch_size": 10, "shuffle": False, "drop_last": True},
    }

    partition: str | dict[str, Any] = "natural"
    clients: Count = None
    window: Annotated[int, Field(ge=1)] = 200
    """Readings in a window."""
    standardise: bool = False
    """Give each axis mean 0 and standard deviation 1 over each client's training part."""

    def files(self) -> list[Path]:
        """Return the one file."""
        return find([FILE], (FOLDER, ""))

    def absent(self) -> InputError:
        """Return the error for the missing file."""
        return missing("wisdm", f"{FOLDER}/{FILE}")

    def load(self) -> Dataset:
        """Return all windows as 3×1×200, in m/s²; a person's name is their number in the data."""
        files = self.present()
        source = {"files": hashes(files), "window": self.window}
        return cached("wisdm", source, lambda: _decode(files[0], self.window))

    def prepare(self, federated: FederatedData) -> FederatedData:
        """Standardise each client's windows, if asked to."""
        return federated.standardised() if self.standardise else federated

    def install(self, folder: Path, progress: Progress) -> None:
        """Fetch the official archive; it has no published checksum, so the file in it is read as a check."""
        fetch_archive("wisdm", ARCHIVE, folder / FOLDER, [FILE, "readme.txt"], progress, check=_check)


def _check(name: str, path: Path) -> None:
    if name == FILE:
        try:
            read_readings(path)
        except InputError:
            raise Unreachable(f"the {name} that came cannot be read") from None


def _decode(path: Path, window: int) -> Dataset:
    readings, skipped = read_readings(path)
    order = np.lexsort((readings.places, readings.times, readings.users))
    users, starts, counts = np.unique(readings.users[order], return_index=True, return_counts=True)
    windows = counts // window
    taken = [
        order[start : start + count * window].reshape(count, window)
        for start, count in zip(starts, windows, strict=True)
    ]
    rows = np.concatenate(taken)
    if not len(rows):
        raise InputError(f"{path}: no user in it has {window} readings: give a smaller dataset.window")
    values = readings.values[rows].transpose(0, 2, 1)[:, :, None]
    votes = (readings.labels[rows][..., None] == np.arange(len(CLASSES))).sum(axis=1)
    kept = windows > 0
    return Dataset(
        Samples(torch.from_numpy(np.ascontiguousarray(values)), torch.from_numpy(votes.argmax(axis=1))),
        CLASSES,
        owners=torch.from_numpy(np.repeat(np.arange(kept.sum()), windows[kept])),
        owner_names=tuple(str(user) for user in users[kept]),
        notes=_notes(len(order), skipped, len(order) - rows.size, users[~kept]),
    )


def _notes(readings: int, skipped: int, left_over: int, without: np.ndarray) -> tuple[str, ...]:
    parts = [f"{skipped:,} malformed records skipped"] if skipped else []
    parts += [f"{left_over:,} readings left over that fill no window"] if left_over else []
    parts += [f"users without a window: {', '.join(map(str, without))}"] if len(without) else []
    return (f"wisdm: {readings:,} readings used; " + "; ".join(parts),) if parts else ()
