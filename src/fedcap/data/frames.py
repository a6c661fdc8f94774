"""Data frames, such as those of pandas: each row is a sample, and each column a feature or a role.

fedcap does not need pandas: whatever has named columns and gives each as an array is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedcap.data.columns import Roles, number, refuse_gaps, refuse_text, refuse_twins
from fedcap.data.labels import gaps_error, missing


def is_frame(value: Any) -> bool:
    """Whether this is a data frame."""
    return all(hasattr(value, name) for name in ("columns", "to_numpy", "__getitem__", "__len__"))


def column_names(frame: Any) -> list[str]:
    """Return the names of a frame's columns, as text."""
    return [str(name) for name in frame.columns]


def matrix(what: str, frame: Any) -> np.ndarray:
    """Return a frame all of whose columns are features as an n×F matrix of numbers."""
    refuse_twins(what, column_names(frame))
    return _features(what, _columns(frame, column_names(frame)))


def arrays(what: str, frame: Any, roles: Roles) -> dict[str, Any]:
    """Return the x, y, client and test of a frame."""
    given = {"y": roles.label, "client": roles.client, "test": roles.test}
    named = {key: name for key, name in given.items() if name is not None}
    columns = _columns(frame, [*named.values(), *roles.features])
    for name in named.values():
        gaps = missing(columns[name])
        if len(gaps):
            raise gaps_error(what, f"column {name!r}", gaps, len(frame), _row(int(gaps[0])))
    found: dict[str, Any] = {key: columns[name] for key, name in named.items()}
    return {**found, "x": _features(what, {name: columns[name] for name in roles.features})}


def _columns(frame: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    keys = dict(zip(column_names(frame), frame.columns, strict=True))
    return {name: np.asarray(frame[keys[name]]) for name in names}


def _features(what: str, columns: dict[str, np.ndarray]) -> np.ndarray:
    x = np.empty((len(next(iter(columns.values()), ())), len(columns)))
    wrong: dict[str, tuple[Any, int]] = {}
    for place, (name, column) in enumerate(columns.items()):
        if column.dtype.kind in "biuf":
            x[:, place] = column
            continue
        dates = column.dtype.kind not in "OUS"  # they would be listed as plain numbers
        cells = [None if dates else number(cell) for cell in column.tolist()]
        if None in cells:
            wrong[name] = (column[cells.index(None)], cells.index(None))
        x[:, place] = [np.nan if cell is None else cell for cell in cells]
    refuse_text(what, wrong, _row)
    refuse_gaps(what, x, list(columns), _row)
    return x


def _row(row: int) -> str:
    return f"row {row} (counted from 0)"
