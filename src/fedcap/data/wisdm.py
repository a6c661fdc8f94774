"""WISDM v1.1 (Kwapisz, Weiss, Moore, 2010): windows of 200 readings without overlap, and a client per person.

A window is 3×1×200 (the axes x, y, z in m/s²), and its label is the most frequent activity of its readings.
The readings of a person are sorted by time.

The raw file has a record `user,activity,timestamp,x,y,z;` per reading, and many defects: blank lines, missing
values, stray commas and semicolons, several records on a line, users and times out of order. Every complete
record is read, wherever it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from fedcap.data.base import Count, Dataset, FederatedData, Progress, Source, registry
from fedcap.data.cache import cached, hashes
from fedcap.data.fetch import Download, Unreachable, fetch_archive
from fedcap.data.files import corrupted_error, find, missing_error, refuse_web_page
from fedcap.errors import InputError
from fedcap.state import Samples

CLASSES = ("Walking", "Jogging", "Sitting", "Standing", "Upstairs", "Downstairs")
_ALPHABET = bytes(range(ord("0"), ord("9") + 1)) + b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ALPHABET += b",;.+-_ \t\r\n"
_LONGEST = 120
"""The largest number of bytes of a regular record."""
_NUMBER = rb"([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\.?"
_COMMA = rb"[ \t]*,[ \t]*"
_RECORD = re.compile(
    rb"(?<![\w.])"
    + _COMMA.join([rb"([0-9]{1,18})", rb"([A-Za-z]+)", rb"([0-9]{1,18})", *[_NUMBER] * 3])
    + rb"(?![\w.])"
)

FOLDER, _FILE = "WISDM_ar_v1.1", "WISDM_ar_v1.1_raw.txt"
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
    """Give each axis mean 0 and standard deviation 1 over each client's training samples."""

    def files(self) -> list[Path]:
        """Return the file."""
        return find([_FILE], (FOLDER, ""))

    def absent(self) -> InputError:
        """Return the error for the missing file."""
        return missing_error("wisdm", f"{FOLDER}/{_FILE}")

    def load(self) -> Dataset:
        """Return all windows as 3×1×200, in m/s²; a person's name is their number in the data."""
        files = self.present()
        source = {"files": hashes(files), "window": self.window}
        return cached("wisdm", source, lambda: _decode(files[0], self.window))

    def prepared(self, federated: FederatedData) -> FederatedData:
        """Standardise each client's windows, if `standardise` is set."""
        return federated.standardised() if self.standardise else federated

    def install(self, folder: Path, progress: Progress) -> None:
        """Fetch the official archive. It has no published checksum, so the file is read as a check."""
        fetch_archive("wisdm", ARCHIVE, folder / FOLDER, [_FILE, "readme.txt"], progress, check=_check)


def _check(name: str, path: Path) -> None:
    if name == _FILE:
        try:
            _read_readings(path)
        except InputError:
            raise Unreachable(f"the fetched {name} cannot be read") from None


def _decode(path: Path, window: int) -> Dataset:
    readings, skipped = _read_readings(path)
    order = np.lexsort((readings.places, readings.times, readings.users))
    users, starts, counts = np.unique(readings.users[order], return_index=True, return_counts=True)
    windows = counts // window
    taken = [
        order[start : start + count * window].reshape(count, window)
        for start, count in zip(starts, windows, strict=True)
    ]
    rows = np.concatenate(taken)
    if not len(rows):
        raise InputError(
            f"{path}: no user in it has {window} readings: give a smaller dataset.window",
            code="too-few-samples",
        )
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


@dataclass(frozen=True)
class _Readings:
    """Records as columns, in any order."""

    places: np.ndarray
    """The offset of each record in the file."""
    users: np.ndarray
    labels: np.ndarray
    """Indices into `CLASSES`, or -1 for another activity."""
    times: np.ndarray
    values: np.ndarray
    """n×3."""

    def only(self, mask: np.ndarray) -> _Readings:
        """Return the readings for which the mask holds."""
        return _Readings(*(column[mask] for column in vars(self).values()))

    @classmethod
    def join(cls, parts: Sequence[_Readings]) -> _Readings:
        """Return the readings of several parts."""
        return cls(
            *(np.concatenate(columns) for columns in zip(*(vars(p).values() for p in parts), strict=True))
        )


def _read_readings(path: Path) -> tuple[_Readings, int]:
    """Return all complete records, and the number of incomplete records.

    Regular records are read together, in columns; the others are searched one by one.
    """
    refuse_web_page(path, "wisdm")
    content = path.read_bytes()
    if strange := content.translate(None, _ALPHABET):
        raise corrupted_error(
            path, f"it has bytes that do not belong to its text, such as {strange[:1]!r}", "wisdm"
        )
    if content and content[-1:] not in b";\r\n":
        raise corrupted_error(path, "it ends in the middle of a record", "wisdm")
    starts, ends, regular = _stretches(content)
    try:
        parts = [_columns(content, starts[regular], ends[regular])]
    except (ValueError, OverflowError):  # a value is not a number: read all records one by one
        parts, regular = [], np.zeros(len(starts), dtype=bool)
    matches = [
        match
        for start, end in zip(starts[~regular].tolist(), ends[~regular].tolist(), strict=True)
        for match in _RECORD.finditer(content, start, end)
    ]
    readings = _Readings.join([*parts, _fields(matches)])
    complete = readings.only((readings.labels >= 0) & np.isfinite(readings.values).all(axis=1))
    records = len(starts) + len(matches) - len({match.pos for match in matches})
    if 2 * len(complete.users) < records or not records:
        raise corrupted_error(
            path, f"only {len(complete.users)} of its {records} records are readings", "wisdm"
        )
    return complete, records - len(complete.users)


def _stretches(content: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the start and end of each stretch between line ends and semicolons, and which are regular.

    A regular stretch has six fields, none of them empty, and at most `_LONGEST` bytes. Stretches of only
    commas and blanks are skipped.
    """
    text = np.frombuffer(content, np.uint8)
    stop = (text == ord(";")) | (text == ord("\n")) | (text == ord("\r"))
    ends = np.flatnonzero(stop)
    starts = np.concatenate([[0], ends[:-1] + 1])
    starts, ends = starts[ends > starts], ends[ends > starts]
    comma = text == ord(",")
    commas = np.flatnonzero(comma)
    gaps = commas[(comma | stop)[commas + 1]]
    regular = (_count(commas, starts, ends) == 5) & (_count(gaps, starts, ends) == 0)
    regular &= (text[starts] != ord(",")) & (ends - starts <= _LONGEST)
    keep = np.ones(len(starts), dtype=bool)
    for at in np.flatnonzero(~regular).tolist():
        keep[at] = bool(content[starts[at] : ends[at]].strip(b" \t,"))
    return starts[keep], ends[keep], regular[keep]


def _count(places: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the number of places in each stretch; the places are in ascending order."""
    return np.searchsorted(places, ends) - np.searchsorted(places, starts)


def _columns(content: bytes, starts: np.ndarray, ends: np.ndarray) -> _Readings:
    """Return the readings of regular records; raise a `ValueError` if a value is not a number."""
    text = np.frombuffer(content, np.uint8)
    commas = np.flatnonzero(text == ord(","))
    inside = commas[np.searchsorted(commas, starts)[:, None] + np.arange(5)]
    first = np.concatenate([starts[:, None], inside + 1], axis=1)
    last = np.concatenate([inside, ends[:, None]], axis=1)
    users, activities, times, *values = (_strings(text, first[:, k], last[:, k]) for k in range(6))
    labels = np.full(len(starts), -1)
    for label, name in enumerate(CLASSES):
        labels[activities == name.encode()] = label
    return _Readings(
        starts,
        users.astype(np.int64),
        labels,
        times.astype(np.int64),
        np.stack([column.astype(np.float32) for column in values], axis=1),
    )


def _strings(text: np.ndarray, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Return the stretches of text as an array of byte strings."""
    width = int((last - first).max(initial=1))
    places = first[:, None] + np.arange(width)
    letters = np.where(places < last[:, None], text[np.minimum(places, len(text) - 1)], 0).astype(np.uint8)
    return letters.view(f"S{width}")[:, 0]


def _fields(matches: Sequence[re.Match[bytes]]) -> _Readings:
    """Return the readings of the records of these matches."""
    labels = {name.encode(): label for label, name in enumerate(CLASSES)}
    return _Readings(
        np.array([match.start() for match in matches], dtype=np.int64),
        np.array([int(match[1]) for match in matches], dtype=np.int64),
        np.array([labels.get(match[2], -1) for match in matches], dtype=np.int64),
        np.array([int(match[3]) for match in matches], dtype=np.int64),
        np.array([[float(match[k]) for k in (4, 5, 6)] for match in matches], np.float32).reshape(-1, 3),
    )
