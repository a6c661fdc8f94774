"""What a network is: a recipe that, given the inputs' shape and the classes, maps n×… to n×classes logits.

`builder` returns a function that builds one. It tries the network once on inputs of the right shape, so that
a network that does not fit its data is an error before the run starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from torch import nn

from fedcap.models.trying import as_text, complete, label, try_out
from fedcap.registry import InputError, Registry, load


class Architecture(ABC):
    """How to build one network, given what goes in and how many classes come out."""

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return a freshly initialised network for inputs of this shape."""


registry: Registry[Architecture] = Registry("model", Architecture, "fedcap.models")
names = registry.names


def check_image(name: str, shape: tuple[int, ...], smallest: tuple[int, int]) -> None:
    """Refuse inputs that are not C×H×W, or too small for the network."""
    if len(shape) != 3 or shape[1] < smallest[0] or shape[2] < smallest[1]:
        raise InputError(
            f"model {name!r} takes inputs of C×H×W, at least {smallest[0]}×{smallest[1]};"
            f" these are {as_text(shape)}: give another --model, such as mlp"
        )


def builder(name: str, shape: tuple[int, ...], classes: int) -> Callable[[], nn.Module]:
    """Return a function that builds the named network, and that can be sent to other processes."""
    if ":" in name:
        build: Callable[[], nn.Module] = partial(_build_own, name)
    else:
        build = partial(registry.make(name).build, shape, classes)
    build = partial(complete, build, label(name), shape)
    try_out(build, label(name), shape, classes, own=":" in name)
    return build


def _build_own(name: str) -> nn.Module:
    """Build the user's `module:function`; other processes find it by that name too."""
    build = load(name)
    module = build() if callable(build) and not isinstance(build, nn.Module) else None
    if not isinstance(module, nn.Module):
        raise InputError(f"model {name!r} is not a function without arguments that returns an nn.Module")
    return module
