"""The base class of networks, `Architecture`, and `builder`, which returns a function that builds one.

A network maps inputs, n×…, to logits, n×classes. `builder` first runs inputs of zeros of the right shape
through the network, so a network that does not fit its data is an error before the run starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from fedcap.errors import InputError
from fedcap.models.given import Given, build_complete, label, shape_text, try_out
from fedcap.registry import Registry, load


class Architecture(ABC):
    """A network that is built for the shape of its inputs and the number of classes."""

    @abstractmethod
    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return a new network with initial weights for inputs of this shape."""


registry: Registry[Architecture] = Registry("model", Architecture, "fedcap.models")
names = registry.names


def check_image(name: str, shape: tuple[int, ...], smallest: tuple[int, int]) -> None:
    """Raise an `InputError` for inputs that are not C×H×W, or too small for the network."""
    if len(shape) != 3 or shape[1] < smallest[0] or shape[2] < smallest[1]:
        raise InputError(
            f"model {name!r} takes inputs of C×H×W, at least {smallest[0]}×{smallest[1]};"
            f" these are {shape_text(shape)}: choose another model, such as mlp",
            code="unsuitable-model",
            field=name,
        )


def builder(
    model: str | Given, shape: tuple[int, ...], classes: int, integers: bool = False
) -> Callable[[], nn.Module]:
    """Return a function that builds a network. It can be pickled, unless the network is a `Given`.

    `integers` says whether inputs are integers.
    """
    name = model.label if isinstance(model, Given) else model
    if isinstance(model, Given):
        build: Callable[[], nn.Module] = model
    elif ":" in name:
        build = partial(_build_own, name)
    else:
        build = partial(registry.make(name).build, shape, classes)
    is_own = isinstance(model, Given) or ":" in name
    if integers and not is_own:
        raise InputError(
            f"model {name!r} takes no integers (dataset.integers): give a custom network that begins with"
            " nn.Embedding",
            code="unsuitable-model",
            field=name,
        )
    dtype = torch.int64 if integers else torch.float32
    build = partial(build_complete, build, label(model), shape, dtype)
    try_out(build, label(model), shape, dtype, classes, is_own)
    if is_own:
        _check_new(name, build)
    return build


def _build_own(name: str) -> nn.Module:
    """Build the user's `module:function`."""
    build = load(name)
    module = build() if callable(build) and not isinstance(build, nn.Module) else None
    if not isinstance(module, nn.Module):
        raise InputError(
            f"model {name!r} is not a function without arguments that returns an nn.Module", code="wrong-type"
        )
    return module


def _check_new(name: str, build: Callable[[], nn.Module]) -> None:
    """Raise an `InputError` if a function returns the same weights twice: each client trains its own."""
    with torch.random.fork_rng(devices=[]):
        modules = build(), build()
    first, second = ({id(weight) for weight in module.parameters()} for module in modules)
    if first & second:
        raise InputError(
            f"model {name!r} has the same weights each time it is built: build new layers in the function,"
            " or give the module itself",
            code="same-weights",
        )
