"""What every aggregation rule is: a frozen set of options and one function of the updates.

`updates` is N×D, a row per client; `malicious` is M, how many rows the server fears to be bad. A robust
rule implements `combine`, which sees finite rows only: a row with NaN or infinity is surely one of the M,
so it is dropped and M is lowered by one. Rows of any finite size, 1e30 too, are for the rule to withstand.

Every row has one vote in a robust rule: sample counts are the clients' own claims, and what a rule
promises it promises for M rows, not for M rows that say they stand for a thousand. Only the mean weighs.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedcap.registry import InputError, Registry


@dataclass(frozen=True)
class Aggregator(ABC):
    """A rule that turns N updates, up to `malicious` of them bad, into one."""

    coordinate_wise: ClassVar[bool] = False
    """Whether each coordinate of the result depends on that coordinate of the updates alone."""

    @abstractmethod
    def __call__(self, updates: Tensor, weights: Tensor | None = None, malicious: int = 0) -> Tensor:
        """Return the aggregate, D; `weights` (N, not negative) are the clients' sample counts."""

    def tolerates(self, rows: int) -> int:
        """Return the largest M the rule can be asked for, of so many rows; negative if they are too few."""
        return rows - 1


@dataclass(frozen=True)
class Robust(Aggregator):
    """A rule that bad rows do not break; what is left of N and M after dropping rows goes to `combine`."""

    def __call__(self, updates: Tensor, weights: Tensor | None = None, malicious: int = 0) -> Tensor:
        """Return the aggregate of the finite rows, each of which has one vote."""
        rows, malicious = without_bad_rows(updates.detach(), malicious)
        most = self.tolerates(len(rows))
        if most < 0:
            raise InputError(f"{type(self).__name__} cannot work with {len(rows)} rows: they are too few")
        if malicious > most:
            raise InputError(
                f"{type(self).__name__} cannot take {malicious} malicious of {len(rows)} rows: at most {most}"
            )
        exact = rows if rows.dtype == torch.float64 else rows.float()
        return self.combine(exact, malicious).to(updates.dtype)

    @abstractmethod
    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the aggregate, D, of finite rows, N×D, of which up to `malicious` are bad."""


@dataclass(frozen=True)
class Wrapper(Robust):
    """A robust rule round another one, which is built at once, so that a mistake in it is told at once."""

    rule: str | dict[str, Any] = "median"
    """The inner rule: a name, or a table of its name and options."""

    def __post_init__(self) -> None:
        _ = self.inner

    @cached_property
    def inner(self) -> Aggregator:
        """The inner rule."""
        return chosen(self.rule)


registry: Registry[Aggregator] = Registry("aggregator", Aggregator, "fedcap.aggregators")


def chosen(rule: str | Mapping[str, Any]) -> Aggregator:
    """Build a rule from its name, or from a table of its name and its options."""
    options = {"name": rule} if isinstance(rule, str) else dict(rule)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise InputError('a rule is a name, or a table such as {name = "bucketing", rule = "median"}')
    return registry.make(name, **options)


def finite_rows(updates: Tensor) -> Tensor:
    """Return which rows are numbers throughout, N flags."""
    finite = updates.sum(dim=1).isfinite()
    if not bool(finite.all()):  # a bad row, or one so large that its sum has no number
        finite[~finite] = updates[~finite].isfinite().all(dim=1)
    return finite


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
    """Return a generator for one call of a rule that needs chance.

    It follows from the seed and a sample of the rows' bits. So the rule remains a function of its
    arguments, yet its draw changes each round, as the rows do; and without the seed nobody can choose
    a row that leads to a draw of their liking.
    """
    bits = rows[:, :: max(1, rows.shape[1] // 256)].detach().cpu().double().numpy().tobytes()
    digest = hashlib.sha256(str(seed).encode() + bits).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
