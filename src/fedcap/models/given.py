"""Trying a network on inputs of zeros before a run: what would fail in training is an error now.

Lazy layers (`nn.LazyLinear`, …) learn their shapes from such a pass. It is made whenever one is built, here
and in worker processes alike, so their weights depend on the seed alone.

A network given from Python: an `nn.Module`, or a function or class that builds one.

A function or class is called under the run's seed, as a named network is. A module is copied when it is
given, and its own weights are the common start, whatever the seed. What other processes can import is kept
as `module:name`; of anything else a run's directory keeps a name and a hash, and it is resumed from Python.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedcap import fingerprint
from fedcap.errors import InputError, UserCodeError
from fedcap.registry import load


def as_text(shape: tuple[int, ...]) -> str:
    """Return a shape as people write it: 3×32×32."""
    return "×".join(map(str, shape))


def label(model: str | Given) -> str:
    """Return what to call a network that fails: the user's own is theirs."""
    if isinstance(model, Given):
        return f"your model {model.label}"
    return f"your model {model}" if ":" in model else f"model {model!r}"


def complete(build: Callable[[], nn.Module], called: str, shape: tuple[int, ...]) -> nn.Module:
    """Build a network; if it has lazy layers, give them their shapes by a pass of two zero inputs."""
    module = build()
    if _lazy(module):
        with torch.no_grad():
            _answer(module.eval(), called, shape)
        module.train()
    for name, kind in _lazy(module).items():
        raise InputError(
            f"{called}: forward does not use the lazy layer {name!r} ({kind}), so it has no shape; use it,"
            " or give it its sizes"
        )
    return module


def try_out(
    build: Callable[[], nn.Module], called: str, shape: tuple[int, ...], classes: int, own: bool
) -> None:
    """Run two inputs of zeros through a new network; the user's own is tried in training, too.

    No global random state is touched.
    """
    with torch.random.fork_rng(devices=[]):
        with _blamed(called, "could not be built"):
            module = build()
        with torch.no_grad():
            _check(_answer(module.eval(), called, shape), called, classes)
        if not own:
            return
        if not any(weight.requires_grad for weight in module.parameters()):
            raise InputError(f"{called} has no weights to train")
        logits = _answer(module.train(), called, shape)
        _check(logits, called, classes, " in training")
        with _blamed(called, "failed in backward"):
            logits.sum().backward()  # type: ignore[no-untyped-call]


def _answer(module: nn.Module, called: str, shape: tuple[int, ...]) -> Tensor:
    with _blamed(called, "failed in forward", f" (given two inputs of {as_text(shape)})"):
        return module(torch.zeros(2, *shape))  # type: ignore[no-any-return]


def _check(logits: object, called: str, classes: int, when: str = "") -> None:
    found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if found != (2, classes):
        raise InputError(
            f"{called} answers two inputs{when} with {found}; the data has {classes} classes,"
            f" so it must be (2, {classes})"
        )


def _lazy(module: nn.Module) -> dict[str, str]:
    """Return the layers that have no shape yet, with their types."""
    return {
        name or "itself": type(layer).__name__
        for name, layer in module.named_modules()
        for weight in (*layer.parameters(recurse=False), *layer.buffers(recurse=False))
        if is_lazy(weight)
    }


@contextmanager
def _blamed(called: str, how: str, given: str = "") -> Iterator[None]:
    """Turn whatever the network's own code raises in the block into an error that names it."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise UserCodeError(f"{called} {how}: {type(error).__name__}: {error}{given}") from error


SHOWN = 16
"""How many digits of the hash stand in the label."""


@dataclass(frozen=True)
class Given:
    """A network that has no name: how to build it, and what to call it."""

    build: Callable[[], Any]
    label: str

    def __call__(self) -> nn.Module:
        """Build the network."""
        module = self.build()
        if not isinstance(module, nn.Module):
            raise InputError(f"model {self.label} should build an nn.Module (got {type(module).__name__})")
        return module


@dataclass(frozen=True)
class Copies:
    """Builds copies of a module, its weights included."""

    module: nn.Module

    def __call__(self) -> nn.Module:
        """Return a copy."""
        return copy.deepcopy(self.module)


def as_choice(model: Any) -> str | Given | None:
    """Return a model, however it was given, as its name or as a network that has none."""
    if isinstance(model, str) and model.startswith("__main__:"):
        model = load(model)
    if model is None or isinstance(model, str | Given):
        return model
    if isinstance(model, nn.Module):
        try:
            build: Any = Copies(copy.deepcopy(model))
        except Exception as error:
            raise InputError(f"model cannot be copied ({error}): give a function that builds it") from error
    elif callable(model):
        found = fingerprint.reference(model)
        if found is not None:
            return found
        build = model
    else:
        raise InputError(
            "model should be a name, an nn.Module, or a function or class without arguments that builds one"
            f" (got {model!r})"
        )
    label, known = fingerprint.label(model), fingerprint.fingerprint(model)
    return Given(build, f"{label.removesuffix('>')}, {known[:SHOWN]}>")
