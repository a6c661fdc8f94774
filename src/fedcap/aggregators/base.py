"""What every aggregation rule is: a frozen set of options and one function of the updates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor

from fedcap.registry import Registry


@dataclass(frozen=True)
class Aggregator(ABC):
    """A rule that turns N updates, up to `malicious` of them bad, into one."""

    @abstractmethod
    def __call__(self, updates: Tensor, weights: Tensor | None = None, malicious: int = 0) -> Tensor:
        """Return the aggregate, D; `weights` (N, not negative) are the clients' sample counts."""


registry: Registry[Aggregator] = Registry("aggregator", Aggregator, "fedcap.aggregators")
