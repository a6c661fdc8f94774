"""Notes about data that can be read, and may still be wrong: one line each, for the user to decide.

They find frequent mistakes in tables of the user's own: classes or owners that are one, marks of missing
values, identifiers or dates as features, a feature that is the label, and samples that occur twice.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from fedcap.data.base import Dataset

_EXAMINED = 100_000
"""The number of samples that are looked at."""
_FEWEST = 20
"""Smaller tables are not looked at: chance looks like a mistake."""
_SHOWN = 3
_GAPS = {"na", "n/a", "#n/a", "nan", "null", "?", "-", "--", "missing"}
"""Names of classes or owners that often stand for a missing value, in small letters."""
_MISSING = (-99999, -9999, -999, -99, -9, 999, 9999, 99999)
"""Numbers that often stand for a missing value."""
_IDENTIFIER = re.compile(r"(^|[_ .-])(id|nr|no|number|index|mrn)$|^unnamed: \d+$", re.IGNORECASE)
_TWICE = 0.02
"""The share of samples that may be equal to others."""


def doubts(dataset: Dataset) -> list[str]:
    """Return notes about a data set of the user, before it is divided."""
    length = min(len(dataset.samples), _EXAMINED)
    if dataset.classes == 1:
        return [f"all labels are {dataset.class_names[0]!r}: a run needs samples of two classes or more"]
    if length < _FEWEST:
        return []
    y = dataset.samples.y[:length].numpy()
    found = [*_similar("classes", dataset.class_names), *_similar("clients", dataset.owner_names)]
    found += [*_gaps("class", dataset.class_names), *_gaps("client", dataset.owner_names)]
    found += _rare(dataset, np.bincount(dataset.samples.y.numpy(), minlength=dataset.classes))
    x = dataset.samples.x
    if x.ndim != 2 or not x.dtype.is_floating_point:
        return found
    table = x[:length].numpy()
    for place in range(table.shape[1]) if len(dataset.features) == table.shape[1] else ():
        if dataset.levels and dataset.levels[place]:
            continue
        name, column = dataset.features[place], table[:, place].astype(np.float64)
        note = _column(name, column[~np.isnan(column)]) or _leak(name, column, y)
        found += [] if note is None else [note]
    return [*found, *_repeated(table, y)]


def _similar(kind: str, names: Sequence[str]) -> Iterator[str]:
    """Yield a note for names that differ only in their spelling."""
    by_form = defaultdict(list)
    for name in names:
        by_form[_form(name)].append(name)
    for same in by_form.values():
        if len(same) > 1:
            listed = ", ".join(map(repr, same[:_SHOWN]))
            yield (
                f"the {kind} {listed} differ only in case, spaces or zeros: give them one name if they are"
                " the same"
            )


def _form(name: str) -> str:
    """Return a name without case and spaces; numbers without leading zeros and fraction zeros."""
    text = "".join(name.casefold().split())
    return re.sub(r"^0+(?=\d)", "", re.sub(r"^(\d+)\.0*$", r"\1", text))


def _gaps(kind: str, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        if name.strip().lower() in _GAPS:
            yield f"the {kind} {name!r} looks like a missing value: leave its samples out, if it is one"


def _rare(dataset: Dataset, counts: np.ndarray) -> list[str]:
    """Return a note about classes of one sample only."""
    single = [dataset.class_names[place] for place in np.flatnonzero(counts == 1).tolist()]
    if not single:
        return []
    who = ", ".join(map(repr, single[:_SHOWN])) + (
        f" and {len(single) - _SHOWN} more" * (len(single) > _SHOWN)
    )
    return [f"only one sample has the class {who}: check its spelling, or leave it out"]


def _column(name: str, values: np.ndarray) -> str | None:
    """Return a note about a feature that looks like an identifier, dates, or has marks of missing values."""
    if len(values) < _FEWEST:
        return None
    low, high = float(values.min()), float(values.max())
    if np.array_equal(values, np.round(values)) and high > low:
        distinct = len(np.unique(values))
        if distinct == len(values) and (high - low == distinct - 1 or _IDENTIFIER.search(name)):
            return (
                f"column {name!r} has another whole number in each row, like an identifier: a model can learn"
                " from it only by accident; leave it out (dataset.ignore) unless it is a measurement"
            )
        # A 32-bit number has 24 bits: a date such as 20240131 is rounded to an even number.
        months, days = values // 100 % 100, values % 100
        if (
            low >= 19000101
            and high <= 21001231
            and months.min() >= 1
            and months.max() <= 12
            and days.max() <= 32
        ):
            return (
                f"column {name!r} holds dates as numbers (YYYYMMDD): turn them into durations, or leave the"
                " column out (dataset.ignore)"
            )
    for mark in _MISSING:
        if mark != (low if mark < 0 else high):
            continue
        others = values[values != mark]
        count = len(values) - len(others)
        if count < 2 or not len(others):
            continue
        gap = float(others.min()) - mark if mark < 0 else mark - float(others.max())
        if gap > 3 * max(float(np.ptp(others)), 1.0):
            return (
                f"column {name!r} has the value {mark} {count} times, and all others lie between"
                f" {others.min():g} and {others.max():g}: if it stands for a missing value, leave the cell"
                " empty and set dataset.prepare=auto"
            )
    return None


def _leak(name: str, column: np.ndarray, y: np.ndarray) -> str | None:
    """Return a note if a feature has exactly one value for each class."""
    classes, first = np.unique(y, return_index=True)
    if len(classes) < 2 or len(classes) > len(y) // 4:
        return None
    values = column[first]
    if len(set(values.tolist())) < len(classes) or not np.array_equal(
        values[np.searchsorted(classes, y)], column
    ):
        return None
    return (
        f"column {name!r} has one value for each class, so it is the label in other words: leave it out"
        " (dataset.ignore) unless it is known before the label"
    )


def _repeated(table: np.ndarray, y: np.ndarray) -> list[str]:
    """Return a note if samples with a measured value occur more than once."""
    if (
        max(len(np.unique(table[:1000, place])) for place in range(table.shape[1]))
        <= min(len(table), 1000) // 4
    ):
        return []  # all features have few values: equal samples are usual
    rows = np.ascontiguousarray(np.column_stack([table, y.astype(table.dtype)]))
    counts = np.unique(
        rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))), return_counts=True
    )[1]
    again = int((counts - 1).sum())
    if again < max(2, _TWICE * len(table)):
        return []
    return [
        f"{again} of {len(table):,} samples repeat another one: the accuracy is too high if the same sample"
        " is in training and test parts; leave repetitions out"
    ]
