"""The paper's three networks: two convolutions without padding, each with max-pooling, and two linear layers.

Max-pooling before the ReLU gives the same result as after it, because a ReLU is monotonic, and is faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fedcap.models.base import Architecture, check_image, registry


class _PaperCNN(Architecture):
    """A network of this form with the sizes `kernel`, `pool`, `filters` and `hidden`."""

    name: ClassVar[str]
    kernel: ClassVar[tuple[int, int]]
    pool: ClassVar[tuple[int, int]]
    filters: ClassVar[tuple[int, int]]
    hidden: ClassVar[int]

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the network; inputs are C×H×W."""
        height, width = zip(self.kernel, self.pool, strict=True)
        check_image(self.name, shape, (_smallest(*height), _smallest(*width)))
        first, second = self.filters
        features = second * _features(shape[1], *height) * _features(shape[2], *width)
        return nn.Sequential(
            nn.Conv2d(shape[0], first, self.kernel),
            nn.MaxPool2d(self.pool),
            nn.ReLU(),
            nn.Conv2d(first, second, self.kernel),
            nn.MaxPool2d(self.pool),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(features, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, classes),
        )


def _features(side: int, kernel: int, pool: int) -> int:
    """Return the length of a side after both convolutions and pools."""
    return ((side - kernel + 1) // pool - kernel + 1) // pool


def _smallest(kernel: int, pool: int) -> int:
    """Return the shortest side with one feature left after both convolutions and pools."""
    return (pool + kernel - 1) * pool + kernel - 1


@registry.register("cnn-cifar10")
@dataclass(frozen=True)
class Cifar10CNN(_PaperCNN):
    """Two 5×5 convolutions (32, 64), two linear layers (64): 156,810 weights for CIFAR-10."""

    name: ClassVar[str] = "cnn-cifar10"
    kernel: ClassVar[tuple[int, int]] = (5, 5)
    pool: ClassVar[tuple[int, int]] = (2, 2)
    filters: ClassVar[tuple[int, int]] = (32, 64)
    hidden: ClassVar[int] = 64


@registry.register("cnn-emnist")
@dataclass(frozen=True)
class EmnistCNN(_PaperCNN):
    """Two 5×5 convolutions (16, 32), two linear layers (128): 86,910 weights for EMNIST."""

    name: ClassVar[str] = "cnn-emnist"
    kernel: ClassVar[tuple[int, int]] = (5, 5)
    pool: ClassVar[tuple[int, int]] = (2, 2)
    filters: ClassVar[tuple[int, int]] = (16, 32)
    hidden: ClassVar[int] = 128


@registry.register("cnn-wisdm")
@dataclass(frozen=True)
class WisdmCNN(_PaperCNN):
    """Two 1×5 convolutions (32, 64), two linear layers (64): 203,782 weights for WISDM."""

    name: ClassVar[str] = "cnn-wisdm"
    kernel: ClassVar[tuple[int, int]] = (1, 5)
    pool: ClassVar[tuple[int, int]] = (1, 2)
    filters: ClassVar[tuple[int, int]] = (32, 64)
    hidden: ClassVar[int] = 64
