"""Labels, owners and test flags as numbers, from tensors, arrays, lists or columns of a data frame.

The values are numbers, text, or Python objects of either. A missing value (None, NaN, empty text) is an error
that names its place.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcap.errors import InputError

_BLANK = ("", "nan", "NaN")
"""Texts that stand for a missing label or owner. "NA" and "None" may be names."""
_FLAGS = {"0": False, "1": True, "false": False, "true": True, "train": False, "test": True}
"""The forms of a test flag, in any case."""
MOST_FROM_FLOATS = 20
"""The largest number of classes that labels such as 2.0 may have."""
FEW = 10
"""With fewer samples than this, each may have another label."""


def one_each(what: str, name: str, values: Any, length: int) -> np.ndarray:
    """Return one value per sample as an array, n; the shape n×1 is accepted."""
    try:
        if isinstance(values, list | tuple):
            array = _from_list(values)
        else:
            array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{what}: {name} is not an array: {error}", code="data-shape", field=name) from None
    if array.shape == (length, 1):
        array = array[:, 0]
    if array.shape != (length,):
        raise InputError(
            f"{what}: {name} must have {length} entries, one for each of the inputs x;"
            f" its shape is {list(array.shape)}",
            code="data-shape",
            field=name,
        )
    return array


def _from_list(values: Sequence[Any]) -> np.ndarray:
    """Return a list as an array of the same objects. NumPy would turn None or NaN next to text into text."""
    if any(isinstance(value, list | tuple | np.ndarray) for value in values):
        return np.asarray(values)
    array = np.empty(len(values), dtype=object)
    array[:] = [value.item() if isinstance(value, Tensor) else value for value in values]
    return array


def numbered(what: str, name: str, values: np.ndarray) -> tuple[tuple[str, ...], Tensor]:
    """Return the distinct values as text, sorted, and the index of each entry among them."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    gaps = missing_places(values)
    if len(gaps):
        raise gaps_error(what, name, gaps, len(values), f"sample {gaps[0]} (counted from 0)")
    distinct, places = np.unique(_plain(what, name, values), return_inverse=True)
    return tuple(str(value) for value in distinct.tolist()), torch.from_numpy(places.astype(np.int64))


def flags(what: str, name: str, values: np.ndarray) -> Tensor:
    """Return test flags as booleans: 0 or 1, true or false, or the words train and test."""
    if values.dtype.kind in "biuf" and np.isin(values, (0, 1)).all():
        return torch.from_numpy(values.astype(bool))
    words = [_word(value) for value in values.tolist()]
    wrong = next((word for word in words if word not in _FLAGS), None)
    if wrong is not None:
        raise InputError(
            f"{what}: {name} must be true or false for each sample, and one is {wrong!r}",
            code="bad-value",
            field=name,
        )
    return torch.tensor([_FLAGS[word] for word in words])


def numeric_labels_note(what: str, labels: np.ndarray, names: Sequence[str]) -> str | None:
    """Return a note if labels are floating-point numbers; refuse many values, which are no classes."""
    values = labels.tolist() if labels.dtype.kind == "O" else []
    if labels.dtype.kind != "f" and not any(
        isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral) for value in values
    ):
        return None
    if len(names) > MOST_FROM_FLOATS:
        raise InputError(
            f"{what}: y holds floating-point numbers with {len(names)} different values: fedcap predicts"
            " classes, not amounts; group the values into classes, or give the classes as integers or text",
            code="bad-value",
            field="y",
        )
    return f"{what}: y holds floating-point numbers; each value is a class: {', '.join(names)}"


def refuse_identifiers(names: Sequence[str], samples: int) -> None:
    """Raise an `InputError` for labels of one class only, or of more classes than half of the samples."""
    if len(names) < 2:
        raise InputError(
            f"all {samples} labels are {names[0]!r}: give samples of at least two classes",
            code="one-class",
            field="y",
        )
    if samples >= FEW and 2 * len(names) > samples:
        raise InputError(
            f"{samples} samples have {len(names)} different labels, such as {names[0]!r}: these look like"
            " identifiers; name the column of the classes (dataset.label), or group them into fewer classes",
            code="too-many-classes",
            field="y",
        )


def _word(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip().lower()


def missing_places(values: np.ndarray) -> np.ndarray:
    """Return the indices of missing labels or owners: None, NaN, pandas' NA, or empty text."""
    if values.dtype.kind == "f":
        return np.flatnonzero(np.isnan(values))
    if values.dtype.kind == "U":
        return np.flatnonzero(np.isin(np.char.strip(values), _BLANK))
    if values.dtype.kind == "O":
        return np.flatnonzero([_is_missing(value) for value in values.tolist()])
    return np.empty(0, dtype=int)


def _is_missing(value: Any) -> bool:
    if value is None or isinstance(value, str):
        return value is None or value.strip() in _BLANK
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas' NA, compared with itself, is neither true nor false
        return True


def gaps_error(what: str, name: str, gaps: np.ndarray, samples: int, first: str) -> InputError:
    """Return the error for missing labels or owners; `first` is the place of the first one."""
    return InputError(
        f"{what}: {name} has no value for {len(gaps)} of {samples} samples, first in {first}:"
        " fill it in, or leave such samples out",
        code="missing-value",
    )


def _plain(what: str, name: str, values: np.ndarray) -> np.ndarray:
    """Return labels or owners as whole numbers or as text; raise an `InputError` for other values."""
    if values.dtype.kind == "O":
        values = _from_objects(what, name, values.tolist())
    if values.dtype.kind == "f":
        odd = values[~np.isfinite(values) | (values != np.round(values))]
        if len(odd):
            advice = (
                ": fedcap predicts classes, not amounts; group the values into classes, or name the column"
                " of the classes (dataset.label)"
            ) * (name == "y")
            raise InputError(
                f"{what}: {name} must be whole numbers or text, and it has {odd[0]:g}{advice}",
                code="bad-value",
                field=name,
            )
        values = values.astype(np.int64)
    if values.dtype.kind not in "biuU":
        raise InputError(
            f"{what}: {name} must be whole numbers or text, not {values.dtype}", code="bad-value", field=name
        )
    return values


def _from_objects(what: str, name: str, values: list[Any]) -> np.ndarray:
    """Return Python objects as an array of numbers if they all are numbers, else as text."""
    if all(isinstance(value, bool | np.bool_) for value in values):
        return np.array(values, dtype=bool)
    if all(isinstance(value, numbers.Integral) for value in values):
        return np.array(values, dtype=np.int64)
    if all(isinstance(value, numbers.Real) for value in values):
        return np.array(values, dtype=np.float64)
    for value in values:
        if not isinstance(value, str | numbers.Real):
            raise InputError(
                f"{what}: {name} must be whole numbers or text, and one is a {type(value).__name__}",
                code="bad-value",
                field=name,
            )
    return np.array([str(value) for value in values])
