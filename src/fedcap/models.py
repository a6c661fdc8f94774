"""The networks, by name; `module:function` names one's own. Each maps n×… inputs to n×classes logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import nn

from fedcap.registry import InputError, Registry, load


class Architecture:
    """How to build one network, given what goes in and how many classes come out."""

    onednn: ClassVar[bool] = True
    """Whether oneDNN's kernels are the faster ones on a CPU; for very small layers they are not."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return a freshly initialised network for inputs of this shape."""
        raise NotImplementedError


registry: Registry[Architecture] = Registry("model", Architecture)
names = registry.names


@registry.register("cnn-digits")
@dataclass(frozen=True)
class DigitsCNN(Architecture):
    """Two 3×3 convolutions of stride 2 (16, 32), two linear layers (64): 13,706 weights for digits."""

    onednn: ClassVar[bool] = False

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the network; inputs are C×H×W."""
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


def builder(name: str, shape: tuple[int, ...], classes: int) -> Callable[[], nn.Module]:
    """Return a function, one that other processes can be sent, that builds the named network."""
    if ":" in name:
        build = load(name)
        if not callable(build):
            raise InputError(f"model {name!r} is not a function that returns an nn.Module")
        return build  # type: ignore[no-any-return]
    return partial(registry.make(name).build, shape, classes)


def prefers_onednn(name: str) -> bool:
    """Return whether the named network trains faster with oneDNN's kernels than without, on a CPU."""
    return ":" in name or registry.make(name).onednn
