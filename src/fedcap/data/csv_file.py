"""The user's own table from a CSV file: a header, then a sample per row.

Values are separated by commas, semicolons, tabs or bars, whichever the header has; they may be quoted. The
text is UTF-8, or UTF-16 with a mark at its beginning. All columns but those of labels, owners and test flags
hold numbers, with a decimal point; between semicolons it may be a comma.
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcap.data.base import Dataset, registry
from fedcap.data.cache import cached, hashes
from fedcap.data.files import refuse_web_page, unusable
from fedcap.data.labels import gaps_error, missing
from fedcap.data.own import Own, from_arrays
from fedcap.data.tables import Column, Columns, Place, Roles, number, refuse_gaps, refuse_text
from fedcap.errors import InputError

SEPARATORS = ",;\t|"
MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""The bytes that a file in UTF-16 begins with."""


@registry.register("csv")
@dataclass(frozen=True)
class Csv(Own):
    """Your own table: --dataset FILE.csv --set dataset.label=COLUMN, and dataset.client if it has owners."""

    path: str = ""
    """The file."""
    label: Column = None
    """The column of labels; need not be given if one is called label, target, y or class."""
    client: Column = None
    """The column that says whose each sample is; need not be given if it is called client."""
    test: Column = None
    """The column that says which samples are for testing only; need not be given if it is called test."""
    ignore: Columns = ()
    """Columns to leave out."""

    def has_owners(self) -> bool:
        """Whether the file has a column of clients."""
        return self.roles().client is not None

    @property
    def heading(self) -> str:
        """The file's name."""
        return Path(self.path).stem

    def roles(self) -> Roles:
        """Return which column is what; raise an error if the file cannot be read."""
        if not self.path:
            raise InputError("a path of a CSV file is needed", code="missing-path", field="csv")
        names = [name for name in _header(Path(self.path))[1] if name]
        return Roles.assign(self.path, names, self.label, self.client, self.test, self.ignore)

    def files(self) -> list[Path]:
        """Return the one file; raise an error if it cannot be read."""
        self.roles()
        return [Path(self.path)]

    def load(self) -> Dataset:
        """Return all rows as vectors of numbers."""
        files, roles = self.files(), self.roles()
        named = [roles.label, roles.client, roles.test, *roles.features]
        return cached("csv", {"files": hashes(files), "columns": named}, lambda: _read(files[0], roles))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a text file; tell in one line what keeps it from being read."""
    try:
        refuse_web_page(path)
        with open(path, "rb") as file:
            encoding = MARKS.get(file.read(2), "utf-8-sig")
        with open(path, encoding=encoding, newline="") as text:
            yield text
    except UnicodeError:
        raise unusable(path, "it is not text in UTF-8: save it as CSV in UTF-8") from None
    except csv.Error as error:
        raise unusable(path, f"it is not a CSV file ({error})") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def _header(path: Path) -> tuple[str, list[str]]:
    """Return what separates the values, and the names of the columns: empty for one without a name."""
    with _opened(path) as file:
        found = [_first(file, separator, strict=True) for separator in SEPARATORS]
        if not any(found):
            found = [_first(file, separator, strict=False) for separator in SEPARATORS]
    names = max(found, key=len)
    if not any(names):
        raise unusable(path, "it has no header, a first line that names the columns")
    if all(number(name) is not None for name in names):
        raise unusable(path, "its first line holds numbers: put a line above it that names the columns")
    return SEPARATORS[found.index(names)], names


def _first(file: Any, separator: str, strict: bool) -> list[str]:
    """Return the first row, as this separator cuts it; if strict, empty where that leaves stray quotes."""
    file.seek(0)
    try:
        rows = filter(_has_text, csv.reader(file, delimiter=separator, skipinitialspace=True, strict=strict))
        return [name.strip() for name in next(rows, [])]
    except csv.Error:
        return []


def _has_text(cells: list[str]) -> bool:
    return any(cell.strip() for cell in cells)


def _read(path: Path, roles: Roles) -> Dataset:
    separator, names = _header(path)
    places = [names.index(name) for name in roles.features]
    given = {"y": roles.label, "client": roles.client, "test": roles.test}
    named = {key: name for key, name in given.items() if name is not None}
    texts: dict[str, list[str]] = {key: [] for key in named}
    values, lines = array("d"), array("q")
    wrong: dict[str, tuple[str, int]] = {}
    with _opened(path) as file:
        reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
        rows = filter(_has_text, reader)
        next(rows)
        for cells in rows:
            if len(cells) != len(names):
                raise unusable(
                    path, f"line {reader.line_num} has {len(cells)} values, and the header names {len(names)}"
                )
            for key, name in named.items():
                texts[key].append(cells[names.index(name)].strip())
            values.extend(_numbers(cells, places, names, len(lines), wrong, separator == ";"))
            lines.append(reader.line_num)
    if not lines:
        raise unusable(path, "it has a header and no rows")
    x = np.array(values).reshape(len(lines), len(places))

    def place(row: int) -> str:
        return f"line {lines[row]}"

    what = str(path)
    refuse_text(what, wrong, place)
    refuse_gaps(what, x, roles.features, place)
    arrays = {key: _typed(what, named[key], column, place) for key, column in texts.items()}
    notes = (f"{path.name}: a column without a name is left out",) if "" in names else ()
    return from_arrays(what, x, **arrays, notes=notes)


def _numbers(
    cells: list[str],
    places: list[int],
    names: list[str],
    row: int,
    wrong: dict[str, tuple[str, int]],
    commas: bool,
) -> list[float]:
    """Return the features of a row; what is not a number becomes NaN, and the first of a column is kept.

    `commas` says whether a comma may be the decimal point.
    """
    try:
        return [float(cells[place]) for place in places]
    except ValueError:
        taken = [cells[place].replace(",", ".") if commas else cells[place] for place in places]
        found = [number(cell) for cell in taken]
        for place, value in zip(places, found, strict=True):
            if value is None:
                wrong.setdefault(names[place], (cells[place], row))
        return [float("nan") if value is None else value for value in found]


def _typed(what: str, name: str, texts: list[str], place: Place) -> np.ndarray:
    """Return a column of labels, owners or flags; refuse one with gaps.

    Whole numbers become numbers, so that 10 comes after 9; so do fractions, which are refused as labels.
    Whatever else there is stays text, such as 007.
    """
    column = np.array(texts)
    gaps = missing(column)
    if len(gaps):
        raise gaps_error(what, f"column {name!r}", gaps, len(column), place(int(gaps[0])))
    distinct = set(texts)
    try:
        if all(str(int(text)) == text for text in distinct):
            return column.astype(np.int64)
    except (ValueError, OverflowError):
        pass
    if any("." in text for text in distinct) and all(_is_finite(text) for text in distinct):
        return column.astype(np.float64)
    return column


def _is_finite(text: str) -> bool:
    value = number(text)
    return value is not None and math.isfinite(value)
