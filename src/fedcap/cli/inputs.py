"""Inputs for a model from a user's file: CSV, Parquet, .npz or .npy.

A table may have columns that are not features: the label, the client, test flags, columns that the run
ignored, and an identifier of each row. All other columns are features, which the model's preparation matches
by name. This module imports NumPy: commands import it when they run.
"""

from __future__ import annotations

import importlib
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcap.data.csv_file import read_columns, typed
from fedcap.data.labels import missing_places, numbered, one_each
from fedcap.data.tables import LABELS, Table, arrow_column, feature_names
from fedcap.errors import InputError, nearest
from fedcap.files import can_write_parquet

TABLES = (".csv", ".tsv", ".parquet")
ARRAYS = (".npz", ".npy")
ROW_NAME = "id"
"""The default name of the column that identifies each row, in any case."""


@dataclass(frozen=True)
class FileInputs:
    """The content of a file for a model."""

    x: Any
    """n×…, or a `Table` if the columns have names."""
    y: np.ndarray | None
    """The labels, n, if the file has them."""
    identifiers: Sequence[str] | None = None
    """The identifier of each row, n, if the file has one."""
    identifier: str = ROW_NAME
    """The name of the column of identifiers."""


def read_inputs(
    path: Path, dataset: Mapping[str, Any], features: Sequence[str], identifier: str | None
) -> FileInputs:
    """Read a file for a model with these features, trained with these options of its data set.

    `identifier` is the name of the column that identifies each row.
    """
    suffix = path.suffix.lower()
    if suffix not in (*TABLES, *ARRAYS):
        raise InputError(
            f"{path} must be a table or arrays: {', '.join((*TABLES, *ARRAYS))}",
            code="bad-file",
            field=str(path),
        )
    if suffix in TABLES:
        return _from_table(path, _columns(path), dataset, features, identifier)
    if identifier is not None:
        raise InputError(f"{path} has no columns, so none identifies its rows", code="bad-value", field="id")
    arrays = _arrays(path)
    if "features" not in arrays:
        return FileInputs(arrays["x"], arrays.get("y"))
    names = feature_names(str(path), arrays["features"], arrays["x"].shape)
    return FileInputs(Table(dict(zip(names, arrays["x"].T, strict=True))), arrays.get("y"))


def _columns(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a table; those of a CSV file are text."""
    if path.suffix.lower() != ".parquet":
        return read_columns(path)
    if not can_write_parquet():
        raise InputError(
            "Parquet files need pyarrow: pip install 'fedcap[parquet]'", code="needs-extra", field="parquet"
        )
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    try:
        table = parquet.read_table(path)
    except (OSError, arrow.ArrowException) as error:
        first = str(error).partition("\n")[0]
        raise InputError(f"cannot read {path}: {first}", code="bad-file", field=str(path)) from None
    return {name: arrow_column(table.column(name)) for name in table.column_names}


def _from_table(
    path: Path,
    columns: dict[str, np.ndarray],
    dataset: Mapping[str, Any],
    features: Sequence[str],
    identifier: str | None,
) -> FileInputs:
    free = [name for name in columns if name not in features]
    label = _role(dataset.get("label"), free, LABELS)
    others = [_role(dataset.get(role), free, (role,)) for role in ("client", "test")]
    if identifier is None:
        identifier = _role(None, free, (ROW_NAME,))
    elif identifier not in columns:
        raise InputError(
            f"{path} has no column {identifier!r}: {nearest(identifier, list(columns))}",
            code="unknown-name",
            field="id",
        )
    ignored = dataset.get("ignore") or ()
    left_out = {label, identifier, *others, *ignored} - set(features)
    x = Table({name: values for name, values in columns.items() if name not in left_out})
    if not x.columns or not len(x):
        raise InputError(f"{path} has no inputs", code="data-shape", field=str(path))
    y = None if label is None else _label(path, label, columns[label])
    if identifier is None:
        return FileInputs(x, y)
    return FileInputs(x, y, [str(value) for value in columns[identifier].tolist()], identifier)


def _role(given: Any, free: Sequence[str], usual: Sequence[str]) -> str | None:
    """Return the column of a role: the one that the run had, or the only one with a usual name."""
    if isinstance(given, str):
        return given if given in free else None
    found = [name for name in free if name.lower() in usual]
    return found[0] if len(found) == 1 else None


def _label(path: Path, name: str, values: np.ndarray) -> np.ndarray | None:
    """Return the column of labels; none if it is empty."""
    if len(missing_places(values)) == len(values):
        return None
    is_text = values.dtype.kind == "U"
    return typed(str(path), name, values.tolist(), lambda row: f"row {row + 1}") if is_text else values


def known_labels(path: Path, y: np.ndarray | None, length: int, classes: Sequence[str]) -> list[str] | None:
    """Return the labels by the run's names of the classes; refuse a class that the run does not have."""
    if y is None:
        return None
    known, places = numbered(str(path), "y", one_each(str(path), "y", y, length))
    for name in known:
        if name not in classes:
            raise InputError(
                f"{path}: y has the class {name!r}, which the run does not have: {nearest(name, classes)}",
                code="unknown-name",
                field="y",
            )
    return [known[place] for place in places.tolist()]


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """Return inputs `x` and, if there, labels `y` and names `features`; nothing in it is unpickled."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            arrays, names = {"x": loaded}, "x"
        else:
            with loaded:
                arrays = {name: loaded[name] for name in ("x", "y", "features") if name in loaded.files}
                names = ", ".join(loaded.files)
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(
            f"{path} is not a NumPy file of numbers: {error}", code="bad-file", field=str(path)
        ) from None
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}", code="missing-file", field=str(path)
        ) from None
    if "x" not in arrays:
        raise InputError(
            f"{path} has no array 'x', only {names or 'nothing'}", code="data-shape", field=str(path)
        )
    if arrays["x"].ndim == 0 or not len(arrays["x"]):
        raise InputError(f"{path}: x has no inputs", code="data-shape", field=str(path))
    return arrays
