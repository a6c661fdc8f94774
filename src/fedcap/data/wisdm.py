"""WISDM v1.1 (Kwapisz, Weiss, Moore, 2010): phone accelerometers of 36 people in six activities, at 20 Hz.

The raw file has a record per reading, `user,activity,timestamp,x,y,z;`, and flaws: blank lines, missing
values, stray commas and semicolons, several records on a line, users and times out of order. Every whole
record is used, in order of time within its user; windows of 200 readings do not overlap and are labelled
by majority.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from fedcap.data.base import Count, Dataset, FederatedData, Progress, Source, registry
from fedcap.data.cache import cached, hashes
from fedcap.data.fetch import Download, fetch_archive
from fedcap.data.files import corrupted, find, missing, refuse_web_page
from fedcap.samples import Samples

CLASSES = ("Walking", "Jogging", "Sitting", "Standing", "Upstairs", "Downstairs")
FOLDER, FILE = "WISDM_ar_v1.1", "WISDM_ar_v1.1_raw.txt"
ARCHIVE = Download("https://www.cis.fordham.edu/wisdm/includes/datasets/latest/WISDM_ar_latest.tar.gz")
ALPHABET = bytes(range(ord("0"), ord("9") + 1)) + b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ALPHABET += b",;.+-_ \t\r\n"
LONGEST = 120
"""Bytes of a regular record; what is longer is looked at by itself."""
_NUMBER = rb"([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\.?"
_COMMA = rb"[ \t]*,[ \t]*"
RECORD = re.compile(
    rb"(?<![\w.])"
    + _COMMA.join([rb"([0-9]{1,18})", rb"([A-Za-z]+)", rb"([0-9]{1,18})", *[_NUMBER] * 3])
    + rb"(?![\w.])"
)


@registry.register("wisdm")
@dataclass(frozen=True)
class Wisdm(Source):
    """Phone accelerometers of 36 people in 6 activities, windows of 200 readings; a client per person."""

    model: ClassVar[str] = "cnn-wisdm"
    defaults: ClassVar[Mapping[str, Any]] = {
        "rounds": 100,
        "training": {"lr": 0.01, "epochs": 5, "batch_size": 10, "shuffle": False, "drop_last": True},
        "methods": {"fedcap": {"alpha": 2.0, "phi": 0.1, "lambda_": 0.1, "t_norm": 10.0}},
    }

    partition: str | dict[str, Any] = "natural"
    clients: Count = None
    window: Annotated[int, Field(ge=1)] = 200
    """Readings in a window."""
    standardise: bool = False
    """Give each axis mean 0 and deviation 1, by each client's own training part."""

    def files(self) -> list[Path]:
        """Return the one file."""
        return find([FILE], (FOLDER, ""))

    def load(self) -> Dataset:
        """Return all windows as 3×1×200, in m/s²."""
        files = self.files()
        if not files:
            raise missing("wisdm", f"{FOLDER}/{FILE}")
        source = {"files": hashes(files), "window": self.window}
        return cached("wisdm", source, lambda: _decode(files[0], self.window))

    def prepare(self, federated: FederatedData) -> FederatedData:
        """Standardise each client's windows, if asked to."""
        if not self.standardise:
            return federated
        pairs = [
            _standardised(train, test) for train, test in zip(federated.train, federated.test, strict=True)
        ]
        return replace(federated, train=[train for train, _ in pairs], test=[test for _, test in pairs])

    def install(self, folder: Path, progress: Progress) -> None:
        """Fetch the official archive; it has no published checksum, so the file in it is read through."""
        fetch_archive("wisdm", ARCHIVE, folder / FOLDER, [FILE, "readme.txt"], progress, check=_check)


def _standardised(train: Samples, test: Samples) -> tuple[Samples, Samples]:
    deviation, mean = torch.std_mean(train.x, dim=(0, 2, 3), keepdim=True, correction=0)
    scale = deviation.clamp_min(1e-6)
    return Samples((train.x - mean) / scale, train.y), Samples((test.x - mean) / scale, test.y)


@dataclass(frozen=True)
class Readings:
    """Records as columns, in any order."""

    places: np.ndarray
    """Where in the file each begins."""
    users: np.ndarray
    labels: np.ndarray
    """-1 for an activity that there is none of."""
    times: np.ndarray
    values: np.ndarray
    """n×3."""

    def only(self, mask: np.ndarray) -> Readings:
        """Return the readings for which the mask holds."""
        return Readings(*(column[mask] for column in vars(self).values()))

    @classmethod
    def join(cls, parts: Sequence[Readings]) -> Readings:
        """Return all readings of several parts."""
        return cls(
            *(np.concatenate(columns) for columns in zip(*(vars(p).values() for p in parts), strict=True))
        )


def _check(path: Path) -> None:
    if path.name == FILE:
        _decode(path, 200)


def _decode(path: Path, window: int) -> Dataset:
    readings, skipped = _read(path)
    order = np.lexsort((readings.places, readings.times, readings.users))
    users, starts, counts = np.unique(readings.users[order], return_index=True, return_counts=True)
    windows = counts // window
    taken = [
        order[start : start + count * window].reshape(count, window)
        for start, count in zip(starts, windows, strict=True)
    ]
    rows = np.concatenate(taken)
    if not len(rows):
        raise corrupted(path, f"no user in it has {window} readings")
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


def _read(path: Path) -> tuple[Readings, int]:
    """Return every whole record, and how many were not."""
    refuse_web_page(path)
    content = path.read_bytes()
    if strange := content.translate(None, ALPHABET):
        raise corrupted(path, f"it holds bytes that its text never has, such as {strange[:1]!r}")
    if content and content[-1:] not in b";\r\n":
        raise corrupted(path, "it ends in the middle of a record")
    starts, ends, regular = _stretches(content)
    try:
        parts = [_columns(content, starts[regular], ends[regular])]
    except (ValueError, OverflowError):  # some value is no number: find out which, the slow way
        parts, regular = [], np.zeros(len(starts), dtype=bool)
    matches = [
        match
        for start, end in zip(starts[~regular].tolist(), ends[~regular].tolist(), strict=True)
        for match in RECORD.finditer(content, start, end)
    ]
    readings = Readings.join([*parts, _fields(matches)])
    whole = readings.only((readings.labels >= 0) & np.isfinite(readings.values).all(axis=1))
    records = len(starts) + len(matches) - len({match.pos for match in matches})
    if 2 * len(whole.users) < records or not records:
        raise corrupted(path, f"only {len(whole.users)} of its {records} records are readings")
    return whole, records - len(whole.users)


def _stretches(content: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where each stretch between line ends and semicolons begins and ends, and which are regular.

    Regular ones have six fields, none of them empty. Stretches of nothing but commas and blanks are left
    out: they are strays, not records.
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
    regular &= (text[starts] != ord(",")) & (ends - starts <= LONGEST)
    keep = np.ones(len(starts), dtype=bool)
    for at in np.flatnonzero(~regular).tolist():
        keep[at] = bool(content[starts[at] : ends[at]].strip(b" \t,"))
    return starts[keep], ends[keep], regular[keep]


def _count(places: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return how many of the places, which ascend, lie in each stretch."""
    return np.searchsorted(places, ends) - np.searchsorted(places, starts)


def _columns(content: bytes, starts: np.ndarray, ends: np.ndarray) -> Readings:
    """Return regular records; a value that is no number is a `ValueError`."""
    text = np.frombuffer(content, np.uint8)
    commas = np.flatnonzero(text == ord(","))
    inside = commas[np.searchsorted(commas, starts)[:, None] + np.arange(5)]
    first = np.concatenate([starts[:, None], inside + 1], axis=1)
    last = np.concatenate([inside, ends[:, None]], axis=1)
    users, activities, times, *values = (_strings(text, first[:, k], last[:, k]) for k in range(6))
    labels = np.full(len(starts), -1)
    for label, name in enumerate(CLASSES):
        labels[activities == name.encode()] = label
    return Readings(
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


def _fields(matches: Sequence[re.Match[bytes]]) -> Readings:
    """Return the records that were found one by one."""
    labels = {name.encode(): label for label, name in enumerate(CLASSES)}
    return Readings(
        np.array([match.start() for match in matches], dtype=np.int64),
        np.array([int(match[1]) for match in matches], dtype=np.int64),
        np.array([labels.get(match[2], -1) for match in matches], dtype=np.int64),
        np.array([int(match[3]) for match in matches], dtype=np.int64),
        np.array([[float(match[k]) for k in (4, 5, 6)] for match in matches], np.float32).reshape(-1, 3),
    )
