"""The user's own table from a CSV file: a header, then one sample per row.

Values are separated by commas, semicolons, tabs or bars, as in the header, and may be quoted. The text is
UTF-8, or UTF-16 with a byte order mark. All columns except those of labels, owners and test flags have
numbers with a decimal point; in files with semicolons it may be a comma.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fedcap.data.base import Dataset, registry
from fedcap.data.cache import cached, hashes
from fedcap.data.encoding import LevelTable, encode, find_levels
from fedcap.data.files import refuse_web_page, unusable_error
from fedcap.data.labels import gaps_error, missing_places
from fedcap.data.own import Own, Prepare, from_arrays
from fedcap.data.tables import Column, Columns, Place, Roles, number, refuse_gaps, refuse_text
from fedcap.errors import InputError

_SEPARATORS = ",;\t|"
_DECIMAL_COMMA = re.compile(r"^([-+]?\d*),(\d+)$")
_READER = 2
"""Increase it when the same file gives other samples or notes: then cached entries are not used."""
_THOUSANDS = re.compile(r"^[-+]?[1-9]\d{0,2}[.,]\d{3}$")
_EXAMINED = 10_000
"""The number of rows that are looked at for marks of thousands."""
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""The byte order marks of UTF-16."""


@registry.register("csv")
@dataclass(frozen=True)
class Csv(Own):
    """Your own table: --dataset FILE.csv --set dataset.label=COLUMN, and dataset.client if it has owners."""

    path: str = ""
    """The file."""
    label: Column = None
    """The column of labels; by default the one called label, target, y or class."""
    client: Column = None
    """The column of owners; by default the one called client."""
    test: Column = None
    """The column of test flags; by default the one called test."""
    ignore: Columns = ()
    """Columns to ignore."""
    prepare: Prepare = None
    """Fill in missing numbers and encode categories: auto. By default, both are refused."""
    levels: LevelTable = None
    """The public categories of columns, such as {ward = ["A", "B"]}; by default those in training samples."""

    def has_owners(self) -> bool:
        """Return whether the file has a column of owners."""
        return self.roles().client is not None

    @property
    def heading(self) -> str:
        """The file's name."""
        return Path(self.path).stem

    def roles(self) -> Roles:
        """Return the roles of the columns; raise an `InputError` if the file cannot be read."""
        if not self.path:
            raise InputError("a path of a CSV file is needed", code="missing-path", field="csv")
        names = [name for name in _header(Path(self.path))[1] if name]
        return Roles.assign(self.path, names, self.label, self.client, self.test, self.ignore)

    def files(self) -> list[Path]:
        """Return the file; raise an `InputError` if it cannot be read."""
        self.roles()
        return [Path(self.path)]

    def load(self) -> Dataset:
        """Return all rows as vectors of numbers."""
        files, roles = self.files(), self.roles()
        content = {"files": hashes(files), "roles": asdict(roles), "reader": _READER}
        if self.prepare is not None:
            how = {"prepare": 1, **({} if self.levels is None else {"levels": self.levels})}
            return cached("csv", {**content, **how}, lambda: _read_encoded(files[0], roles, self.levels))
        if self.integers:
            return cached("csv", {**content, "integers": 1}, lambda: _read(files[0], roles, True))
        return cached("csv", content, lambda: _read(files[0], roles))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a text file; raise an `InputError` if it cannot be read."""
    try:
        refuse_web_page(path)
        with open(path, "rb") as file:
            encoding = _MARKS.get(file.read(2), "utf-8-sig")
        with open(path, encoding=encoding, newline="") as text:
            yield text
    except UnicodeError:
        raise unusable_error(path, "it is not text in UTF-8: save it as CSV in UTF-8") from None
    except csv.Error as error:
        raise unusable_error(path, f"it is not a CSV file ({error})") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", code="missing-file") from None


def _header(path: Path) -> tuple[str, list[str]]:
    """Return the separator and the names of the columns; a column without a name has an empty one."""
    with _opened(path) as file:
        found = [_first(file, separator, strict=True) for separator in _SEPARATORS]
        if not any(found):
            found = [_first(file, separator, strict=False) for separator in _SEPARATORS]
    names = max(found, key=len)
    if not any(names):
        raise unusable_error(path, "it has no header, a first line that names the columns")
    if all(number(name) is not None for name in names):
        raise unusable_error(path, "its first line holds numbers: put a line above it that names the columns")
    return _SEPARATORS[found.index(names)], names


def _first(file: Any, separator: str, strict: bool) -> list[str]:
    """Return the first row, split at this separator; if strict, an empty row if that leaves stray quotes."""
    file.seek(0)
    try:
        rows = filter(_has_text, csv.reader(file, delimiter=separator, skipinitialspace=True, strict=strict))
        return [name.strip() for name in next(rows, [])]
    except csv.Error:
        return []


def _has_text(cells: list[str]) -> bool:
    return any(cell.strip() for cell in cells)


def _read(path: Path, roles: Roles, integers: bool = False) -> Dataset:
    separator, names = _header(path)
    places = [names.index(name) for name in roles.features]
    given = {"y": roles.label, "client": roles.client, "test": roles.test}
    named = {key: name for key, name in given.items() if name is not None}
    texts: dict[str, list[str]] = {key: [] for key in named}
    values, lines = array("d"), array("q")
    wrong: dict[str, tuple[str, int]] = {}
    with _opened(path) as file:
        for line, cells in _rows(path, file, separator, names):
            for key, name in named.items():
                texts[key].append(cells[names.index(name)].strip())
            values.extend(_numbers(cells, places, names, len(lines), wrong, separator == ";"))
            lines.append(line)
    if not lines:
        raise unusable_error(path, "it has a header and no rows")
    x = np.array(values).reshape(len(lines), len(places))

    def place(row: int) -> str:
        return f"line {lines[row]}"

    what = str(path)
    refuse_text(what, wrong, place)
    refuse_gaps(what, x, roles.features, place)
    arrays: dict[str, Any] = {
        key: typed(what, named[key], column, place, merge=key != "client") for key, column in texts.items()
    }
    notes: tuple[str, ...] = (f"{path.name}: a column without a name is left out",) if "" in names else ()
    if separator == ";":
        notes += _thousands(path, names, roles.features)
    return from_arrays(what, x, **arrays, notes=notes, features=roles.features, integers=integers)


def _thousands(path: Path, names: list[str], features: Sequence[str]) -> tuple[str, ...]:
    """Return notes about columns whose decimal marks may separate thousands, in a file with semicolons."""
    with _opened(path) as file:
        rows = [cells for _, cells in islice(_rows(path, file, ";", names), _EXAMINED)]
    columns = {name: [row[names.index(name)].strip() for row in rows] for name in features}
    has_comma = any("," in cell for column in columns.values() for cell in column)
    found = []
    for name, column in columns.items():
        marked = [cell for cell in column if "," in cell or "." in cell]
        if not marked or not all(_THOUSANDS.match(cell) for cell in marked):
            continue
        mark = "," if "," in marked[0] else "."
        if mark == "," or has_comma:
            value = float(marked[0].replace(",", "."))
            found.append(
                f"{path.name}: column {name!r} has {marked[0]!r}, which was read as {value:g}: if the mark"
                " separates thousands, remove it"
            )
    return tuple(found)


def _read_encoded(path: Path, roles: Roles, public: LevelTable) -> Dataset:
    """Return a table that may have missing values and categories."""
    what, columns = str(path), read_columns(path)
    given = {"y": roles.label, "client": roles.client, "test": roles.test}
    arrays: dict[str, Any] = {
        key: typed(what, name, columns[name].tolist(), lambda row: f"row {row + 1}", merge=key != "client")
        for key, name in given.items()
        if name is not None
    }
    features = {name: columns[name] for name in roles.features}
    levels = find_levels(what, features, public)
    x = encode(what, features, levels)
    return from_arrays(what, x, **arrays, features=roles.features, levels=levels)


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """Return all columns that have a name, as text. With semicolons, decimal commas become points."""
    separator, names = _header(path)
    with _opened(path) as file:
        rows = _rows(path, file, separator, names)
        columns = list(zip(*([cell.strip() for cell in cells] for _, cells in rows), strict=True))
    if not columns:
        raise unusable_error(path, "it has a header and no rows")
    if separator == ";":
        columns = [tuple(_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in column) for column in columns]
    found = {name: np.array(column) for name, column in zip(names, columns, strict=True) if name}
    if len(found) < len(list(filter(None, names))):
        raise unusable_error(path, "two of its columns have the same name")
    return found


def _rows(path: Path, file: Any, separator: str, names: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each row below the header."""
    reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
    rows = filter(_has_text, reader)
    next(rows)
    cells: list[str] = []
    for cells in rows:
        if len(cells) != len(names):
            hint = ": a quotation mark above it is not closed" if any("\n" in cell for cell in cells) else ""
            raise unusable_error(
                path,
                f"line {reader.line_num} has {len(cells)} values, and the header names {len(names)}{hint}",
            )
        yield reader.line_num, cells
    if any("\n" in cell for cell in cells):
        _refuse_open_quote(path, file, separator)


def _refuse_open_quote(path: Path, file: Any, separator: str) -> None:
    """Raise an `InputError` if the file ends inside a quoted value, which then holds the rest of the file."""
    file.seek(0)
    try:
        for _ in csv.reader(file, delimiter=separator, skipinitialspace=True, strict=True):
            pass
    except csv.Error as error:
        if "end of data" in str(error):
            raise unusable_error(path, "it ends inside a value: a quotation mark is not closed") from None


def _numbers(
    cells: list[str],
    places: list[int],
    names: list[str],
    row: int,
    wrong: dict[str, tuple[str, int]],
    commas: bool,
) -> list[float]:
    """Return the features of a row; a value that is not a number becomes NaN.

    `wrong` collects the first such value of each column. `commas` says whether a comma may be the decimal
    point.
    """
    try:
        return [float(cells[place]) for place in places]
    except ValueError:
        texts = [cells[place].replace(",", ".") if commas else cells[place] for place in places]
        found = [number(text) for text in texts]
        for place, value in zip(places, found, strict=True):
            if value is None:
                wrong.setdefault(names[place], (cells[place], row))
        return [float("nan") if value is None else value for value in found]


def typed(what: str, name: str, texts: list[str], place: Place, merge: bool = True) -> np.ndarray:
    """Return a column of labels, owners or flags; raise an `InputError` if values are missing.

    Whole numbers become numbers, so that 10 comes after 9. So do fractions, which are rejected as labels
    later. Other values, such as 007, stay text. Without `merge`, 1 and 1.0 stay different texts.
    """
    column = np.array(texts)
    gaps = missing_places(column)
    if len(gaps):
        raise gaps_error(what, f"column {name!r}", gaps, len(column), place(int(gaps[0])))
    distinct = set(texts)
    if any("\0" in text for text in distinct):
        row = next(row for row, text in enumerate(texts) if "\0" in text)
        raise InputError(
            f"{what}: column {name!r} has a zero byte in {place(row)}: the file is damaged, or is not text",
            code="bad-file",
            field=name,
        )
    try:
        if all(str(int(text)) == text for text in distinct):
            return column.astype(np.int64)
    except (ValueError, OverflowError):
        pass
    if any("." in text for text in distinct) and all(_is_finite(text) for text in distinct):
        values = column.astype(np.float64)
        return values if merge or len(np.unique(values)) == len(distinct) else column
    return column


def _is_finite(text: str) -> bool:
    value = number(text)
    return value is not None and math.isfinite(value)
