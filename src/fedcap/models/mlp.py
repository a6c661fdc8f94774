"""A multi-layer perceptron for inputs of any shape: the default network for the user's own data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from fedcap.models.base import Architecture, registry


@registry.register("mlp")
@dataclass(frozen=True)
class MLP(Architecture):
    """Two hidden layers of 200 on the flattened input of any shape (McMahan et al., 2017)."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the network."""
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(shape), 200),
            nn.ReLU(),
            nn.Linear(200, 200),
            nn.ReLU(),
            nn.Linear(200, classes),
        )
