"""Writing files: atomic writes, and tables as CSV, or as Parquet where pyarrow is installed.

An atomic write goes to a temporary file, which is renamed when it is complete.
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

IN_MEMORY = int(os.environ.get("FEDCAP_STATE_MEMORY", 16 << 20))
"""The number of bytes above which the states of the clients, and the records of the rounds, of a run move to
a file. Results do not depend on it."""

Value = str | bool | int | float | None
Row = Mapping[str, Value]
"""A row of a table: values by column."""


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """Yield a temporary path. It is renamed to `path` if the block succeeds, and removed otherwise.

    `path` always has either its old content or the new content. Each process has its own temporary path.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_aside(path: Path, content: bytes | str) -> None:
    """Write a file atomically; the content is flushed to disk before the file is renamed."""
    with aside(path) as partial, open(partial, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Return the columns of all rows, in the order of their first occurrence."""
    return list(dict.fromkeys(column for row in rows for column in row))


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write a header and a line per row; values that are none or missing are left empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns_of(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_aside(path, text.getvalue())


def can_write_parquet() -> bool:
    """Return whether pyarrow is installed."""
    return importlib.util.find_spec("pyarrow") is not None


def write_parquet(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as Parquet; raise an `InputError` that says what to install if pyarrow is missing."""
    if not can_write_parquet():
        raise InputError(
            "Parquet files need pyarrow: pip install 'fedcap[parquet]'", code="needs-extra", field="parquet"
        )
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    columns = {column: [row.get(column) for row in rows] for column in columns_of(rows)}
    with aside(path) as partial:
        parquet.write_table(arrow.table(columns), partial)
