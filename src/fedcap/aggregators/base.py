"""What every aggregation rule is: a frozen set of options and one function of the updates.

`updates` is N×D, a row per client; `malicious` is M, how many rows the server assumes to be bad. A robust
rule implements `combine`, which sees finite rows only: a row with NaN or infinity is surely one of the M,
so it is dropped and M is lowered by one. Finite rows, however large, are left for the rule.

Two numbers tell what can be asked of a rule, and they differ:

- `takes(N)` is the largest M with which it can compute at all. A larger M is refused with an error.
- `withstands(N, M)` is its promise: the number of bad rows, whatever they hold, that a rule told M can have
  while its aggregate stays within a distance of the honest rows that does not depend on the bad ones. It may
  be smaller than M; the rule then still answers, and the round's record notes it. A rule that withstands bad
  rows only if they are of a certain kind promises 0, and its module says which kind.

Every row has one vote in a robust rule. Sample counts are the clients' own claims: if they were weights, M
bad rows could count for a thousand, and the promise for M would not hold. Only the mean uses them.
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
    """A rule that turns N updates, up to `malicious` of them bad, into one."""

    coordinate_wise: ClassVar[bool] = False
    """Whether each coordinate of the result depends on that coordinate of the updates alone."""

    @abstractmethod
    def __call__(self, updates: Values, weights: Values | None = None, malicious: int = 0) -> Tensor:
        """Return the aggregate, D; `weights` (N, not negative) are the clients' sample counts.

        The rules here take NumPy arrays and nested lists as well as tensors.
        """

    def takes(self, rows: int) -> int:
        """Return the largest M that the rule can compute with; negative if the rows are too few."""
        return rows - 1

    def withstands(self, rows: int, malicious: int) -> int:
        """Return how many bad rows, whatever they hold, do not break the rule when it is told M.

        M is at most what the rule takes.
        """
        return 0


@dataclass(frozen=True)
class Robust(Aggregator):
    """A rule meant to withstand bad rows; `combine` gets the finite rows, and M less the dropped ones."""

    def __call__(self, updates: Values, weights: Values | None = None, malicious: int = 0) -> Tensor:
        """Return the aggregate of the finite rows, each of which has one vote."""
        updates = to_floats(updates)
        rows, malicious = without_bad_rows(updates.detach(), malicious)
        most = self.takes(len(rows))
        if most < 0:
            raise InputError(f"{type(self).__name__} cannot work with {plural(len(rows), 'row')}: too few")
        if malicious > most:
            raise InputError(
                f"{type(self).__name__} cannot take {malicious} malicious of {plural(len(rows), 'row')}:"
                f" at most {most}"
            )
        exact = rows if rows.dtype == torch.float64 else rows.float()
        return self.combine(exact, malicious).to(updates.dtype)

    @abstractmethod
    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the aggregate, D, of finite rows, N×D, of which up to `malicious` are bad."""


@dataclass(frozen=True)
class Wrapper(Robust):
    """A robust rule round another one, which is built at once, so that mistakes in it are found early."""

    rule: str | dict[str, Any] | InstanceOf[Aggregator] | InstanceOf[type[Any]] = "median"
    """The inner rule: a name, a table of its name and options, or an object."""

    def __post_init__(self) -> None:
        _ = self.inner

    @cached_property
    def inner(self) -> Aggregator:
        """The inner rule."""
        return registry.build(self.rule)

    def settings(self) -> dict[str, Any]:
        """Return all options as plain values, the inner rule's too."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**options, "rule": registry.canonical(self.rule)}


registry: Registry[Aggregator] = Registry("aggregator", Aggregator, "fedcap.aggregators")


def without_bad_rows(updates: Tensor, malicious: int) -> tuple[Tensor, int]:
    """Return the finite rows, and how many of them may still be malicious."""
    if updates.ndim != 2 or not updates.is_floating_point():
        raise InputError(f"expected N×D updates, got {updates.dtype} of shape {list(updates.shape)}")
    if malicious < 0:
        raise InputError(f"malicious must not be negative (got {malicious})")
    finite = finite_rows(updates)
    dropped = len(updates) - int(finite.sum())
    return (updates[finite], max(0, malicious - dropped)) if dropped else (updates, malicious)


def draw(seed: int, rows: Tensor) -> torch.Generator:
    """Return a generator for one call of a rule that draws at random.

    It is seeded with the rule's seed and a sample of the rows' bits. So equal arguments give an equal draw,
    and another round, whose rows differ, gives another one. A client that does not know the seed cannot
    choose its row such that a certain draw comes out.
    """
    bits = rows[:, :: max(1, rows.shape[1] // 256)].detach().cpu().double().numpy().tobytes()
    digest = hashlib.sha256(str(seed).encode() + bits).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def minority(rows: int) -> int:
    """Return the largest M with 2M < N, which is what medians withstand."""
    return max(0, (rows - 1) // 2)
