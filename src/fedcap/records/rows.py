"""Rows of plain values as files that other tools read: CSV, and Parquet where pyarrow is installed."""

from __future__ import annotations

import csv
import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcap.files import aside, write_aside
from fedcap.records.tables import Value
from fedcap.registry import InputError

Row = Mapping[str, Value]


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Return the columns that any of the rows has, in the order in which they come first."""
    return list(dict.fromkeys(column for row in rows for column in row))


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write a line of names and a line for each row; what is none or missing is left empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns_of(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_aside(path, text.getvalue())


def can_write_parquet() -> bool:
    """Whether pyarrow is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def write_parquet(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as Parquet; without pyarrow, an `InputError` says what to install."""
    if not can_write_parquet():
        raise InputError("Parquet files need pyarrow: pip install 'fedcap[parquet]'")
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    columns = {column: [row.get(column) for row in rows] for column in columns_of(rows)}
    with aside(path) as partial:
        parquet.write_table(arrow.table(columns), partial)
