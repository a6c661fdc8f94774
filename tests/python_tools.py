"""A user's components in a module that other processes can import, and copies that they cannot import."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fedcap import aggregators
from fedcap.aggregators import Aggregator
from fedcap.attacks import Attack
from fedcap.detection import Detector, Policy, Score


@dataclass(frozen=True)
class Louder(Attack):
    """Send the own honest update, scaled."""

    scale: float = 2.0
    table: dict[str, float] = field(default_factory=dict)

    def craft(self, view: Any) -> Tensor:
        return self.scale * view.updates[view.malicious]


@dataclass(frozen=True)
class Plain(Aggregator):
    """The mean, under another name."""

    def __call__(self, updates: Tensor, weights: Any = None, malicious: int = 0) -> Tensor:
        return aggregators.make("mean")(updates, weights, malicious)


@dataclass(frozen=True)
class Longest(Detector):
    """Accuse clients with a norm over the limit, as `norm` does."""

    limit: float = 10.0

    def score(self, view: Any, memory: Any) -> Any:
        return [Score("norm", view.norms, self.limit)], memory


@dataclass(frozen=True)
class Lenient(Policy):
    """Remove no client."""

    def decide(self, accused: Any, scores: Any, view: Any, memory: Any) -> Any:
        return {}, memory


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


class Net(nn.Module):
    """A network of two layers."""

    def __init__(self, hidden: int = 12) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def here(cls: type[Any]) -> type[Any]:
    """Return a class like this one that no other process can import, like a class of a notebook."""
    local = type(cls.__name__, (cls,), {"__module__": "__main__", "__qualname__": cls.__name__})
    return dataclass(frozen=True)(local)
