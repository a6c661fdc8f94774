"""Atomic writes: content goes to a temporary file, which is renamed once it is complete.

Rows of plain values as files that other tools read: CSV, and Parquet where pyarrow is installed.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedcap.errors import InputError

Value = str | bool | int | float | None


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Yield a temporary path, which is renamed to `path` if the block succeeds and removed otherwise.

    `path` always holds either its old content or the new one. Each process has its own temporary path.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_aside(path: Path, content: bytes | str) -> None:
    """Write a file as `aside` does; the content is flushed to disk before the file is renamed."""
    with aside(path) as partial, open(partial, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


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
        raise InputError(
            "Parquet files need pyarrow: pip install 'fedcap[parquet]'", code="needs-extra", field="parquet"
        )
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    columns = {column: [row.get(column) for row in rows] for column in columns_of(rows)}
    with aside(path) as partial:
        parquet.write_table(arrow.table(columns), partial)
