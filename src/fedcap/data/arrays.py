"""The user's own data from Python: arrays, a data frame, or a `torch.utils.data.Dataset` of pairs.

`Experiment(dataset=(x, y))`, or a table with options: `{"x": x, "y": y, "client": users}`, or `{"data":
frame, "label": "diagnosis", "client": "hospital"}`. A run's directory has the hash of the data and not the
data, so such a run can be resumed from Python only.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from fedcap.data import tables
from fedcap.data.base import Dataset, registry
from fedcap.data.encoding import LevelTable, encode, find_levels
from fedcap.data.own import Own, Prepare, from_arrays
from fedcap.data.tables import Column, Columns, Roles
from fedcap.errors import InputError

_WHAT = "dataset"
_NOT_KEPT = ("data", "x", "y", "client", "test")
"""The options that are data; a run's directory has their digest instead."""


@registry.register("arrays")
@dataclass(frozen=True)
class Arrays(Own):
    """Your own data from Python: Experiment(dataset=(x, y)), a data frame, or a torch Dataset."""

    data: Any = None
    """A pair of inputs and labels, a data frame, or a series of pairs such as a torch Dataset."""
    x: Any = None
    """The inputs, n×…, if not in `data`."""
    y: Any = None
    """The labels, n, if not in `data`."""
    label: Column = None
    """A data frame's column of labels; by default the one called label, target, y or class."""
    client: Any = None
    """The owner of each sample, n, or the data frame's column of owners."""
    test: Any = None
    """The test flag of each sample, n, or the data frame's column of test flags."""
    ignore: Columns = ()
    """A data frame's columns to ignore."""
    prepare: Prepare = None
    """Fill in missing numbers and encode categories of a data frame: auto. By default, both are refused."""
    levels: LevelTable = None
    """The public categories of columns, such as {ward = ["A", "B"]}; by default those in training samples."""
    hash: str = ""
    """The digest of the data, which replaces the data in the settings in a run's directory."""

    def has_owners(self) -> bool:
        """Return whether the data has owners."""
        if self.client is None and tables.is_frame(self.data):
            return self._roles().client is not None
        return self.client is not None

    def _roles(self) -> Roles:
        """Return the roles of the data frame's columns."""
        client, test = (
            str(value) if isinstance(value, str | int) else None for value in (self.client, self.test)
        )
        return Roles.assign(_WHAT, tables.column_names(self.data), self.label, client, test, self.ignore)

    @cached_property
    def _dataset(self) -> Dataset:
        if self.prepare is not None and not tables.is_frame(self.data):
            raise InputError(
                "dataset.prepare is for tables: give a data frame as data", code="bad-value", field="prepare"
            )
        if self.x is not None or self.y is not None:
            if self.x is None or self.y is None or self.data is not None:
                raise InputError(
                    'dataset must have both "x" and "y", or "data" and neither', code="missing-data"
                )
            return from_arrays(_WHAT, self.x, self.y, self.client, self.test, integers=self.integers)
        if tables.is_frame(self.data):
            given = {"client": self.client, "test": self.test}
            separate = {
                key: value
                for key, value in given.items()
                if value is not None and not isinstance(value, str | int)
            }
            roles = self._roles()
            arrays = tables.arrays(_WHAT, self.data, roles, raw=self.prepare is not None)
            if self.prepare is not None:
                arrays["levels"] = find_levels(_WHAT, arrays["x"], self.levels)
                arrays["x"] = encode(_WHAT, arrays["x"], arrays["levels"])
            return from_arrays(
                _WHAT, **{**arrays, **separate}, features=roles.features, integers=self.integers
            )
        if self.label is not None or self.ignore:
            raise InputError(
                "dataset.label and dataset.ignore name columns, and the data is not a data frame",
                code="not-a-frame",
            )
        x, y = self.data if isinstance(self.data, tuple | list) and len(self.data) == 2 else _pairs(self.data)
        return from_arrays(_WHAT, x, y, self.client, self.test, integers=self.integers)

    def load(self) -> Dataset:
        """Return the samples."""
        if self._is_absent:
            raise InputError(
                "the data of this run was given from Python and is not stored in its directory: continue it"
                " from Python, with Experiment(dataset=…).run(out=…)",
                code="given-from-python",
            )
        return self._dataset

    @property
    def _is_absent(self) -> bool:
        return self.data is None and self.x is None and self.y is None

    def settings(self) -> dict[str, Any]:
        """Return the options, with the digest of the data in place of the data."""
        kept = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in _NOT_KEPT
        }
        return {**kept, "hash": self.hash if self._is_absent else self.load().digest()}

    def fingerprint(self) -> str:
        """Return the digest of the data, or the one in a run's directory."""
        if self._is_absent and self.hash:
            return self.hash
        return self.load().digest()


def _pairs(data: Any) -> tuple[Any, Any]:
    """Return the inputs and the labels of a `torch.utils.data.Dataset` or another series of pairs."""
    try:
        items = [data[at] for at in range(len(data))] if hasattr(data, "__len__") else list(data)
        pairs = [(_input(x), y) for x, y in items]
        return np.stack([x for x, _ in pairs]), [y for _, y in pairs]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise InputError(
            "dataset must be a name, a path, a pair of arrays (x, y), a data frame, or a Dataset of pairs of"
            f" an input and its class: {error}",
            code="wrong-type",
        ) from None


def _input(x: Any) -> np.ndarray:
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
