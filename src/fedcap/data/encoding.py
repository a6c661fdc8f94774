"""Missing values and categories in tables: `dataset.prepare = "auto"`.

A table becomes n×C numbers, one per column: a number is unchanged, a category is its index among the levels
of its column, and a missing value, or a level that the data of the run did not have, is NaN. The levels are
those of all the data, so that all clients have networks of one size. An `Encoding` makes n×F inputs of it: a
missing number becomes the median of the client's own training samples, and a category becomes one input per
level and one for "other", of which one is 1. Dates and free text are refused by name.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcap.data.base import ClientSamples, FederatedData
from fedcap.data.tables import listed, number, refuse_text, row_in_words
from fedcap.errors import InputError, plural, warn_once
from fedcap.state import Samples

Levels = tuple[tuple[str, ...], ...]
"""The categories of each column, sorted; empty for a column of numbers."""
MOST_LEVELS = 50
"""A column with more different texts is free text."""
_DATE = re.compile(r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T]\d.*)?$")


@dataclass(frozen=True, eq=False)
class Encoding:
    """How one client's table becomes inputs."""

    levels: Levels
    medians: Tensor
    """C: the median of each column of numbers; not used for categories."""

    @classmethod
    def of(cls, levels: Levels, x: Tensor) -> Encoding:
        """Learn the medians from a client's training samples, n×C; a column without values has 0."""
        from sklearn.impute import SimpleImputer  # here: the import takes a second

        imputer = SimpleImputer(strategy="median", keep_empty_features=True).fit(x.double().numpy())
        return cls(levels, torch.from_numpy(imputer.statistics_).to(x.dtype))

    def apply(self, x: Tensor) -> Tensor:
        """Return n×F inputs for a table, n×C."""
        parts = []
        for place, levels in enumerate(self.levels):
            column = x[:, place : place + 1]
            if levels:
                other = torch.full_like(column, len(levels))
                codes = torch.where(column.isnan(), other, column)
                parts.append((codes == torch.arange(len(levels) + 1, device=x.device)).to(x.dtype))
            else:
                parts.append(torch.where(column.isnan(), self.medians[place], column))
        return torch.cat(parts, dim=1)


def encoded(federated: FederatedData) -> FederatedData:
    """Return the data of tables as inputs; the medians of each client are those of its training samples."""
    levels, root = federated.levels, federated.root
    return replace(
        federated,
        clients=_Encoded(federated.clients, levels),
        root=None if root is None else _apply(Encoding.of(levels, root.x), root),
        medians={
            name: Encoding.of(levels, train.x).medians
            for name, train in zip(federated.names, federated.train, strict=True)
        },
    )


@dataclass(frozen=True)
class _Encoded(Sequence[ClientSamples]):
    """The samples of clients, encoded by each one's training samples."""

    clients: Sequence[ClientSamples]
    levels: Levels

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, client: Any) -> Any:
        train, test = self.clients[client]
        by = Encoding.of(self.levels, train.x)
        return _apply(by, train), _apply(by, test)


def _apply(by: Encoding, samples: Samples) -> Samples:
    return Samples(by.apply(samples.x), samples.y)


def encode(what: str, columns: Mapping[str, np.ndarray], levels: Levels, new: bool = False) -> np.ndarray:
    """Return the columns of a table as numbers, n×C; a level that is not among the known ones is NaN.

    `new` says that the table is the input of a trained model; a warning names its unknown levels.
    """
    x = np.empty((len(next(iter(columns.values()), ())), len(columns)), np.float32)
    wrong: dict[str, tuple[Any, int]] = {}
    for place, ((name, column), known) in enumerate(zip(columns.items(), levels, strict=True)):
        if column.dtype.kind in "biuf":
            cells = column.tolist()
        else:
            cells = [None if number(cell) != number(cell) else cell for cell in column.tolist()]
        if known:
            codes = {level: code for code, level in enumerate(known)}
            x[:, place] = [codes.get(str(cell).strip(), np.nan) for cell in cells]
            if new:
                _warn_unknown(what, name, known, [str(cell).strip() for cell in cells if cell is not None])
            continue
        values = [np.nan if cell is None else number(cell) for cell in cells]
        if None in values:
            wrong[name] = (cells[values.index(None)], values.index(None))
        x[:, place] = [np.nan if value is None else value for value in values]
    refuse_text(what, wrong, row_in_words, new)
    if np.isinf(x).any():
        name = list(columns)[int(np.argwhere(np.isinf(x))[0, 1])]
        raise InputError(
            f"{what}: column {name!r} has an infinite value, or one too large for 32-bit numbers",
            code="data-shape",
            field=name,
        )
    return x


def _warn_unknown(what: str, name: str, known: Sequence[str], values: Sequence[str]) -> None:
    """Warn of categories that the run did not have."""
    unknown = [value for value in values if value not in known]
    if unknown:
        warn_once(
            f"{what}: column {name!r} has {plural(len(unknown), 'value')} that the run's data did not have,"
            f" such as {unknown[0][:24]!r} (known: {listed(known)}): the model takes them as other or missing"
        )


def find_levels(what: str, columns: Mapping[str, np.ndarray]) -> Levels:
    """Return the categories of each column; refuse dates, free text, and numbers mixed with other text."""
    return tuple(_levels(what, name, column) for name, column in columns.items())


def _levels(what: str, name: str, column: np.ndarray) -> tuple[str, ...]:
    if column.dtype.kind in "biuf":
        return ()
    if column.dtype.kind in "mM":
        raise _refused(what, name, "dates", column[0])
    values = [(cell, number(cell)) for cell in column.tolist()]
    present = [cell for cell, value in values if value is None or value == value]
    words = [cell for cell, value in values if value is None]
    if not words:
        return ()
    if any(isinstance(cell, datetime.date) or _DATE.match(str(cell).strip()) for cell in words):
        raise _refused(what, name, "dates", words[0])
    if 2 * len(words) < len(present):
        raise _refused(what, name, "numbers and text", words[0])
    found = sorted({str(cell).strip() for cell in present})
    if len(found) > MOST_LEVELS or (len(present) >= 10 and 2 * len(found) > len(present)):
        raise _refused(what, name, f"free text, with {len(found)} different values", words[0])
    return tuple(found)


def _refused(what: str, name: str, content: str, cell: Any) -> InputError:
    return InputError(
        f"{what}: column {name!r} holds {content} ({str(cell)[:24]!r}): turn it into numbers or a few"
        " categories, or ignore it (dataset.ignore)",
        code="text-in-table",
        field=json.dumps([name], ensure_ascii=False),
    )


def categories(features: Sequence[str], levels: Levels) -> dict[str, list[str]]:
    """Return the levels of each column of categories, by name."""
    return {name: list(known) for name, known in zip(features, levels, strict=True) if known}
