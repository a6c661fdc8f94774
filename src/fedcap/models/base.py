"""What a network is: a recipe that, given the inputs' shape and the classes, maps n×… to n×classes logits.

`builder` returns a function that builds one. It tries the network once on inputs of the right shape, so that
a network that does not fit its data is an error before the run starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from fedcap.errors import InputError
from fedcap.models.given import Given, as_text, complete, label, try_out
from fedcap.registry import Registry, load


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
            f" these are {as_text(shape)}: choose another model, such as mlp",
            code="unsuitable-model",
            field=name,
        )


def builder(model: str | Given, shape: tuple[int, ...], classes: int) -> Callable[[], nn.Module]:
    """Return a function that builds a network; it can be sent to other processes, unless it was given."""
    name = model.label if isinstance(model, Given) else model
    if isinstance(model, Given):
        build: Callable[[], nn.Module] = model
    elif ":" in name:
        build = partial(_build_own, name)
    else:
        build = partial(registry.make(name).build, shape, classes)
    own = isinstance(model, Given) or ":" in name
    build = partial(complete, build, label(model), shape)
    try_out(build, label(model), shape, classes, own)
    if own:
        _check_new(name, build)
    return build


def _build_own(name: str) -> nn.Module:
    """Build the user's `module:function`; other processes find it by that name too."""
    build = load(name)
    module = build() if callable(build) and not isinstance(build, nn.Module) else None
    if not isinstance(module, nn.Module):
        raise InputError(f"model {name!r} is not a function without arguments that returns an nn.Module")
    return module


def _check_new(name: str, build: Callable[[], nn.Module]) -> None:
    """Refuse a function that returns the same weights again: every client must train its own."""
    with torch.random.fork_rng(devices=[]):
        modules = build(), build()
    first, second = ({id(weight) for weight in module.parameters()} for module in modules)
    if first & second:
        raise InputError(
            f"model {name!r} has the same weights each time it is built: build new layers in the function,"
            " or give the module itself"
        )
