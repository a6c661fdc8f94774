"""The base classes of aggregation rules: `Aggregator`, `Robust` and `Wrapper`.

A rule is a frozen dataclass of options and one function of the updates. `updates` is N×D, a row per client;
`malicious` is M, the number of rows that the server assumes to be malicious. A robust rule implements
`combine`, which gets finite rows only: a row with NaN or infinity is certainly malicious, so it is dropped
and M is lowered by one. Finite rows of any size are left to the rule.

Two numbers describe a rule, and they differ:

- `max_malicious(N)` is the largest M with which the rule can compute. A larger M is an error.
- `tolerates(N, M)` is its guarantee: with this number of malicious rows, whatever their values, the aggregate
  stays within a distance of the honest rows that does not depend on the malicious ones. It may be smaller
  than M; the rule then still answers, and the record of the round notes it. A rule that tolerates malicious
  rows only if they are of a certain kind returns 0, and its module says which kind.

In a robust rule each row has one vote. Clients report their sample counts themselves: if the counts were
weights, M malicious rows could count as much as a thousand rows, and the guarantee for M would not hold.
Only the mean uses them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import torch
from pydantic import InstanceOf
from torch import Tensor

from fedcap.errors import InputError, plural
from fedcap.matrix import Values, finite_rows, to_floats
from fedcap.registry import Registry


@dataclass(frozen=True)
class Aggregator(ABC):
    """A rule that turns N updates, up to `malicious` of them malicious, into one."""

    coordinate_wise: ClassVar[bool] = False
    """Whether each coordinate of the result depends only on that coordinate of the updates."""

    @abstractmethod
    def __call__(self, updates: Values, weights: Values | None = None, malicious: int = 0) -> Tensor:
        """Return the aggregate, D; `weights` (N, not negative) are the clients' sample counts.

        The rules of this package accept tensors, NumPy arrays and nested lists.
        """

    def max_malicious(self, rows: int) -> int:
        """Return the largest M that the rule can compute with; negative if there are too few rows."""
        return rows - 1

    def tolerates(self, rows: int, malicious: int) -> int:
        """Return the number of malicious rows, whatever their values, that the rule tolerates given M.

        M is at most `max_malicious(rows)`.
        """
        return 0


@dataclass(frozen=True)
class Robust(Aggregator):
    """A rule that tolerates malicious rows. `combine` gets the finite rows, and M minus the dropped rows."""

    def __call__(self, updates: Values, weights: Values | None = None, malicious: int = 0) -> Tensor:
        """Return the aggregate of the finite rows, each of which has one vote."""
        updates = to_floats(updates)
        rows, malicious = _drop_bad_rows(updates.detach(), malicious)
        most = self.max_malicious(len(rows))
        if most < 0:
            raise InputError(
                f"{type(self).__name__} cannot aggregate {plural(len(rows), 'row')}: too few",
                code="too-few-rows",
            )
        if malicious > most:
            raise InputError(
                f"{type(self).__name__} accepts at most {most} malicious of {plural(len(rows), 'row')}"
                f" (got {malicious})",
                code="too-many-malicious",
            )
        exact = rows if rows.dtype == torch.float64 else rows.float()
        return self.combine(exact, malicious).to(updates.dtype)

    @abstractmethod
    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the aggregate, D, of finite rows, N×D, up to `malicious` of which are malicious."""


def _drop_bad_rows(updates: Tensor, malicious: int) -> tuple[Tensor, int]:
    """Return the finite rows, and the number of them that may still be malicious."""
    if updates.ndim != 2 or not updates.is_floating_point():
        raise InputError(
            f"expected N×D updates, got {updates.dtype} of shape {list(updates.shape)}", code="data-shape"
        )
    if malicious < 0:
        raise InputError(f"malicious must not be negative (got {malicious})", code="bad-value")
    finite = finite_rows(updates)
    dropped = len(updates) - int(finite.sum())
    return (updates[finite], max(0, malicious - dropped)) if dropped else (updates, malicious)


@dataclass(frozen=True)
class Wrapper(Robust):
    """A robust rule that applies another one. The inner rule is built at once, so its errors appear early."""

    rule: str | dict[str, Any] | InstanceOf[Aggregator] | InstanceOf[type[Any]] = "median"
    """The inner rule: a name, a table of its name and options, or an object."""

    def __post_init__(self) -> None:
        _ = self.inner

    @cached_property
    def inner(self) -> Aggregator:
        """The inner rule."""
        return registry.build(self.rule)

    def settings(self) -> dict[str, Any]:
        """Return all options as plain values, with those of the inner rule."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**options, "rule": registry.canonical(self.rule)}


registry: Registry[Aggregator] = Registry("aggregator", Aggregator, "fedcap.aggregators")


def generator_for(seed: int, rows: Tensor) -> torch.Generator:
    """Return a generator for one call of a rule that draws at random.

    It is seeded with the rule's seed and a sample of the rows' bits. Equal arguments give equal draws, and
    the rows of another round give another draw. A client that does not know the seed cannot choose its row to
    obtain a certain draw.
    """
    bits = rows[:, :: max(1, rows.shape[1] // 256)].detach().cpu().double().numpy().tobytes()
    digest = hashlib.sha256(str(seed).encode() + bits).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def minority(rows: int) -> int:
    """Return the largest M with 2M < N, which is the number that medians tolerate."""
    return max(0, (rows - 1) // 2)
