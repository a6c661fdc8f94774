"""A network for scikit-learn's digits, small enough for a demo of fifteen runs in two minutes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedcap.models.base import Architecture, check_image, registry


@registry.register("cnn-digits")
@dataclass(frozen=True)
class DigitsCNN(Architecture):
    """Two 3×3 convolutions of stride 2 (16, 32), two linear layers (64): 13,706 weights for digits."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the network; inputs are C×H×W."""
        check_image("cnn-digits", shape, (1, 1))
        height, width = (-(-side // 4) for side in shape[1:])
        return nn.Sequential(
            nn.Conv2d(shape[0], 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * height * width, 64),
            nn.ReLU(),
            nn.Linear(64, classes),
        )
