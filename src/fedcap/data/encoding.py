"""Missing values and categories in tables: `dataset.prepare = "auto"`.

A table becomes n×C numbers, one per column: a number is unchanged, a category is its index among the levels
of its column, and a missing value, or an unknown level, is NaN. An `Encoding` makes n×F inputs of it: a
missing number becomes the median of the client's own training samples, and a category becomes one input per
level and one for "other", of which one is 1. Dates and free text are refused by name.

All clients have networks of one size, so the levels are common to all of them, and public. `dataset.levels`
states them, and a federation's plan does. If nothing states them, which only a simulation allows, they are
the levels that occur in the training part of at least one client. Test samples have no part in them.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BeforeValidator
from torch import Tensor

from fedcap.data.base import ClientSamples, FederatedData
from fedcap.data.tables import listed, number, refuse_text, row_in_words
from fedcap.errors import InputError, nearest, plural, warn_once
from fedcap.state import Samples

Levels = tuple[tuple[str, ...], ...]
"""The categories of each column, sorted; empty for a column of numbers."""


def _as_levels(tables: Any) -> Any:
    """Return levels as text; refuse an empty list, and a level that is given twice."""
    if not isinstance(tables, Mapping):
        return tables
    found = {}
    for name, levels in tables.items():
        if not isinstance(levels, list | tuple) or not levels or len(set(map(str, levels))) < len(levels):
            raise ValueError(f"the levels of {name!r} should be a list of different texts (got {levels!r})")
        found[str(name)] = [_as_text(level) for level in levels]
    return found


LevelTable = Annotated[dict[str, tuple[str, ...]] | None, BeforeValidator(_as_levels)]
"""The public levels of each column of categories, by name; None if they are found in the data."""
MOST_LEVELS = 50
"""A column with more different texts is free text."""
_WHOLE = re.compile(r"^(-?\d+)\.0+$")
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


def encoded(federated: FederatedData, are_public: bool) -> FederatedData:
    """Return the data of tables as inputs; the medians of each client are those of its training samples.

    Unless the levels are public, those that no client has in its training part become "other".
    """
    if not are_public:
        federated = _only_trained(federated)
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


def _only_trained(federated: FederatedData) -> FederatedData:
    """Return tables with only those levels that occur in the training part of a client."""
    occurs = [torch.zeros(len(levels), dtype=torch.bool) for levels in federated.levels]
    for train in federated.train:
        for place, found in enumerate(occurs):
            if len(found):
                codes = train.x[:, place]
                found[codes[~codes.isnan()].long()] = True
    if all(bool(found.all()) for found in occurs):
        return federated
    levels = tuple(
        tuple(level for level, is_there in zip(known, found.tolist(), strict=True) if is_there)
        for known, found in zip(federated.levels, occurs, strict=True)
    )
    recode = [torch.where(found, found.cumsum(0) - 1.0, torch.nan) for found in occurs]
    root = federated.root
    return replace(
        federated,
        clients=_Recoded(federated.clients, recode),
        root=None if root is None else _recoded(recode, root),
        levels=levels,
    )


@dataclass(frozen=True)
class _Recoded(Sequence[ClientSamples]):
    """The tables of clients with other codes of levels: `codes[c]` has the new ones of column c, in order."""

    clients: Sequence[ClientSamples]
    codes: Sequence[Tensor]

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, client: Any) -> Any:
        train, test = self.clients[client]
        return _recoded(self.codes, train), _recoded(self.codes, test)


def _recoded(codes: Sequence[Tensor], samples: Samples) -> Samples:
    x = samples.x.clone()
    for place, new in enumerate(codes):
        if len(new):
            there = ~x[:, place].isnan()
            x[there, place] = new[x[there, place].long()].to(x.dtype)
    return Samples(x, samples.y)


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
            x[:, place] = [codes.get(_as_text(cell), np.nan) for cell in cells]
            if new:
                _warn_unknown(
                    what, name, known, [_as_text(cell) for cell in cells if cell is not None and cell == cell]
                )
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


def _as_text(level: Any) -> str:
    """Return a level as text; 2.0 is 2, because a column of whole numbers with gaps has floats."""
    return _WHOLE.sub(r"\1", str(level).strip())


def find_levels(
    what: str, columns: Mapping[str, np.ndarray], public: Mapping[str, Sequence[str]] | None = None
) -> Levels:
    """Return the categories of each column; refuse dates, free text, and numbers mixed with other text.

    If the public levels are given, each column has those, and one that is not named has numbers.
    """
    if public is None:
        return tuple(_levels(what, name, column) for name, column in columns.items())
    for name in public:
        if name not in columns:
            raise InputError(
                f"{what}: dataset.levels names {name!r}, which is not a column of features:"
                f" {nearest(name, list(columns))}",
                code="unknown-name",
                field=name,
            )
    for name, column in columns.items():
        if name not in public and (found := _levels(what, name, column)):
            raise InputError(
                f"{what}: column {name!r} holds categories ({found[0]!r}) that dataset.levels does not list:"
                " list them, or ignore the column (dataset.ignore)",
                code="text-in-table",
                field=json.dumps([name], ensure_ascii=False),
            )
    return tuple(tuple(public.get(name, ())) for name in columns)


def width(levels: Levels) -> int:
    """Return F, the number of inputs that columns with these levels become."""
    return sum(len(known) + 1 if known else 1 for known in levels)


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
    found = sorted({_as_text(cell) for cell in present})
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
