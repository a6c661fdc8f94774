"""Tables from a CSV file or a data frame: the roles of the columns, and the errors about their values.

One column has the labels; one may name the client of each row, and one may have test flags. All others are
features and must be numbers. A data frame, such as one of pandas, is any object with named columns that
returns each column as an array; fedcap does not need pandas.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator

from fedcap.data.labels import gaps_error, missing_places
from fedcap.errors import InputError

LABELS = ("label", "target", "y", "class")
"""The default names of the column of labels, in any case."""
_GAPS = {"", "na", "n/a", "nan", "null", "none", "?", "-"}
"""Texts that stand for a missing number, in small letters."""
_SHOWN = 8
"""The number of names that an error message lists."""

Place = Callable[[int], str]
"""A function from the number of a row, counted from 0, to its place in words."""


def _as_text(name: Any) -> Any:
    return str(name) if isinstance(name, int | float) else name


def _as_names(names: Any) -> Any:
    return [_as_text(name) for name in ([names] if isinstance(names, str | int | float) else names)]


Column = Annotated[str | None, BeforeValidator(_as_text)]
"""The name of a column."""
Columns = Annotated[tuple[str, ...], BeforeValidator(_as_names)]
"""The names of columns; a single name need not be in a list."""


@dataclass(frozen=True)
class Roles:
    """The name of the column for each role; the other columns are features."""

    label: str
    client: str | None
    test: str | None
    features: tuple[str, ...]

    @classmethod
    def assign(
        cls,
        what: str,
        columns: Sequence[str],
        label: str | None,
        client: str | None,
        test: str | None,
        ignore: Sequence[str],
    ) -> Roles:
        """Return the column of each role: the given one, or the one with a default name.

        The default names are "client", "test" and `LABELS`; of `LABELS` the table must have only one.
        """
        _refuse_twins(what, columns)
        named = [name for name in (label, client, test) if name is not None]
        for name in (*named, *ignore):
            if name not in columns:
                close = difflib.get_close_matches(name, columns, n=1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                raise InputError(
                    f"{what} has no column {name!r}: {hint}{_columns_listed(columns)}",
                    code="unknown-name",
                    field="column",
                )
        for name, count in Counter([*named, *dict.fromkeys(ignore)]).items():
            if count > 1:
                raise InputError(
                    f"{what}: column {name!r} is given for two roles", code="bad-value", field=name
                )
        free = [name for name in columns if name not in named and name not in ignore]
        client = client or _only(free, ("client",))
        test = test or _only(free, ("test",))
        label = label or _only(free, LABELS)
        if label is None:
            raise InputError(
                f"{what}: name the column of labels as dataset.label; {_columns_listed(columns)}",
                code="missing-label",
                field="dataset.label",
            )
        features = tuple(name for name in free if name not in (label, client, test))
        if not features:
            raise InputError(f"{what} has no columns of features, only the labels", code="data-shape")
        return cls(label, client, test, features)


def _only(names: Sequence[str], known: Sequence[str]) -> str | None:
    """Return the only name that is among the known ones, in any case; none if there are several."""
    found = [name for name in names if name.lower() in known]
    return found[0] if len(found) == 1 else None


def _refuse_twins(what: str, columns: Sequence[str]) -> None:
    """Raise an `InputError` if two columns have the same name."""
    for name, count in Counter(columns).items():
        if count > 1:
            raise InputError(
                f"{what}: two columns are called {name!r}: rename one of them", code="name-taken"
            )


def feature_names(what: str, names: Any, shape: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the columns of inputs with this shape; refuse names that are not one per column."""
    found = tuple(str(name) for name in np.asarray(names).ravel().tolist())
    if len(shape) != 2 or len(found) != shape[1]:
        raise InputError(
            f"{what}: features must name each column of x, n×F: it has {len(found)} names, and the shape of"
            f" x is {list(shape)}",
            code="data-shape",
            field="features",
        )
    _refuse_twins(what, found)
    return found


def places_of(what: str, wanted: Sequence[str], columns: Sequence[str]) -> list[int]:
    """Return the place of each wanted feature among the columns, which may be in any order.

    A missing column, or one that is not wanted, is an `InputError` that names it.
    """
    for code, wrong, others, verb in (
        ("missing-feature", [name for name in wanted if name not in columns], columns, "has no column"),
        (
            "extra-feature",
            [name for name in columns if name not in wanted],
            wanted,
            "has an unexpected column",
        ),
    ):
        if wrong:
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            close = difflib.get_close_matches(wrong[0], others, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise InputError(
                f"{what} {verb} {wrong[0]!r}{more}: {hint}the model's features are {listed(wanted)}",
                code=code,
                field=wrong[0],
            )
    return [columns.index(name) for name in wanted]


def listed(names: Sequence[str]) -> str:
    """Return all names, or the first and the last of many."""
    if len(names) <= _SHOWN:
        return ", ".join(names)
    half = _SHOWN // 2
    return f"{', '.join(names[:half])}, …, {', '.join(names[-half:])}"


def _columns_listed(names: Sequence[str]) -> str:
    """Return the names of a table's columns, or some of them, for an error message."""
    return f"{'' if len(names) <= _SHOWN else f'{len(names)} '}columns: {listed(names)}"


def number(cell: Any) -> float | None:
    """Return a cell as a number: NaN if it is missing, `None` if it is other text."""
    try:
        return float(cell)
    except (ValueError, TypeError):
        text = "" if cell is None else str(cell).strip().lower()
        return float("nan") if text in _GAPS or text == "<na>" else None


def refuse_text(what: str, wrong: Mapping[str, tuple[Any, int]], place: Place, new: bool = False) -> None:
    """Raise an `InputError` for columns of text; `wrong` has the first such cell of each, and its row.

    `new` says that the table is the input of a trained model, whose features are known.
    """
    if not wrong:
        return
    cell, row = next(iter(wrong.values()))
    shown = text if len(text := str(cell)) <= 24 else f"{text[:23]}…"
    names = list(wrong)[:_SHOWN]
    message = (
        f"{what}: column{'s' * (len(wrong) > 1)} {', '.join(map(repr, names))} must hold numbers"
        f" ({shown!r} in {place(row)}): turn text into numbers"
    )
    if new:
        raise InputError(f"{message}, as in the run's data", code="text-in-inputs", field=names[0])
    raise InputError(
        f"{message}, name a column as dataset.label or dataset.client, or ignore it (dataset.ignore)",
        code="text-in-table",
        field=json.dumps(names, ensure_ascii=False),
    )


def refuse_gaps(what: str, x: np.ndarray, features: Sequence[str], place: Place) -> None:
    """Raise an `InputError` if any feature of n×F is missing."""
    gaps = np.argwhere(np.isnan(x))
    if len(gaps):
        row, column = gaps[0].tolist()
        count = "1 value is" if len(gaps) == 1 else f"{len(gaps):,} values are"
        raise InputError(
            f"{what}: {count} missing, the first in {place(row)}, column {features[column]!r}:"
            " fill in missing values, or remove such rows or columns",
            code="missing-value",
        )


class Table:
    """Columns by name, as a CSV or Parquet file holds them; `is_frame` says yes to it."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self.columns = list(columns)
        self._columns = columns

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name]

    def to_numpy(self) -> np.ndarray:
        """Return all columns as one array, n×columns."""
        return np.column_stack(list(self._columns.values()))


def is_frame(value: Any) -> bool:
    """Return whether a value is a data frame."""
    return all(hasattr(value, name) for name in ("columns", "to_numpy", "__getitem__", "__len__"))


def column_names(frame: Any) -> list[str]:
    """Return the names of a frame's columns, as text."""
    return [str(name) for name in frame.columns]


def matrix(what: str, frame: Any) -> np.ndarray:
    """Return a data frame of features as a matrix of numbers, n×F."""
    _refuse_twins(what, column_names(frame))
    return _features(what, columns_of(frame, column_names(frame)))


def matched(what: str, wanted: Sequence[str], frame: Any) -> dict[str, np.ndarray]:
    """Return the columns of a trained model's features, in order; refuse missing and unexpected ones."""
    names = column_names(frame)
    _refuse_twins(what, names)
    return columns_of(frame, [names[place] for place in places_of(what, wanted, names)])


def matched_matrix(what: str, wanted: Sequence[str], frame: Any) -> np.ndarray:
    """Return the features of a trained model as a matrix of numbers, n×F."""
    return _features(what, matched(what, wanted, frame), new=True)


def arrays(what: str, frame: Any, roles: Roles, raw: bool = False) -> dict[str, Any]:
    """Return the x, y, client and test of a data frame; if `raw`, x has the columns by name, unchanged."""
    given = {"y": roles.label, "client": roles.client, "test": roles.test}
    named = {key: name for key, name in given.items() if name is not None}
    columns = columns_of(frame, [*named.values(), *roles.features])
    for name in named.values():
        gaps = missing_places(columns[name])
        if len(gaps):
            raise gaps_error(what, f"column {name!r}", gaps, len(frame), row_in_words(int(gaps[0])))
    found: dict[str, Any] = {key: columns[name] for key, name in named.items()}
    features = {name: columns[name] for name in roles.features}
    return {**found, "x": features if raw else _features(what, features)}


def columns_of(frame: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return columns of a data frame as arrays, by name."""
    keys = dict(zip(column_names(frame), frame.columns, strict=True))
    return {name: np.asarray(frame[keys[name]]) for name in names}


def _features(what: str, columns: dict[str, np.ndarray], new: bool = False) -> np.ndarray:
    x = np.empty((len(next(iter(columns.values()), ())), len(columns)))
    wrong: dict[str, tuple[Any, int]] = {}
    for place, (name, column) in enumerate(columns.items()):
        if column.dtype.kind in "biuf":
            x[:, place] = column
            continue
        dates = column.dtype.kind not in "OUS"  # `tolist` would turn dates into plain numbers
        cells = [None if dates else number(cell) for cell in column.tolist()]
        if None in cells:
            wrong[name] = (column[cells.index(None)], cells.index(None))
        x[:, place] = [np.nan if cell is None else cell for cell in cells]
    refuse_text(what, wrong, row_in_words, new)
    refuse_gaps(what, x, list(columns), row_in_words)
    return x


def arrow_column(column: Any) -> np.ndarray:
    """Return a column of an Arrow table; values other than numbers become Python objects."""
    values: np.ndarray = column.to_numpy()
    if values.dtype.kind in "biuf":
        return values
    found = np.empty(len(column), dtype=object)  # `np.array` would make a matrix of lists of one length
    found[:] = column.to_pylist()
    return found


def row_in_words(row: int) -> str:
    """Return the place of a row of a data frame."""
    return f"row {row} (counted from 0)"
