"""Networks of the user (an `nn.Module`, or a function that builds one), and the test of all networks.

A function or class is called under the seed of the run, as a named network is. A module is copied, and its
weights are the common start for any seed. What other processes can import is recorded as `module:name`; of
other objects a run's directory has a label and a hash, and the run is resumed from Python.

A network is tested on inputs of zeros before a run, so its errors appear before training. Lazy layers
(`nn.LazyLinear`, …) get their shapes from such a pass, which every process makes when it builds the network,
so their weights depend only on the seed.
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

_HASH_DIGITS = 16
"""The number of digits of the hash in a label."""


@dataclass(frozen=True)
class Given:
    """A network without a name: a function that builds it, and a label."""

    build: Callable[[], Any]
    label: str

    def __call__(self) -> nn.Module:
        """Build the network."""
        module = self.build()
        if not isinstance(module, nn.Module):
            raise InputError(
                f"model {self.label} should build an nn.Module (got {type(module).__name__})",
                code="wrong-type",
            )
        return module


@dataclass(frozen=True)
class _Copies:
    """A function that returns copies of a module, with its weights."""

    module: nn.Module

    def __call__(self) -> nn.Module:
        """Return a copy."""
        return copy.deepcopy(self.module)


def as_choice(model: Any) -> str | Given | None:
    """Return a choice of a network as a name or, if it has none, as a `Given`."""
    if isinstance(model, str) and model.startswith("__main__:"):
        model = load(model)
    if model is None or isinstance(model, str | Given):
        return model
    if isinstance(model, nn.Module):
        try:
            build: Any = _Copies(copy.deepcopy(model))
        except Exception as error:
            raise InputError(
                f"model cannot be copied ({error}): give a function that builds it", code="wrong-type"
            ) from error
    elif callable(model):
        found = fingerprint.reference(model)
        if found is not None:
            return found
        build = model
    else:
        raise InputError(
            "model should be a name, an nn.Module, or a function or class without arguments that builds one"
            f" (got {model!r})",
            code="wrong-type",
        )
    name, found_hash = fingerprint.label(model), fingerprint.fingerprint(model)
    return Given(build, f"{name.removesuffix('>')}, {found_hash[:_HASH_DIGITS]}>")


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as text: 3×32×32."""
    return "×".join(map(str, shape))


def label(model: str | Given) -> str:
    """Return the name of a network in error messages."""
    if isinstance(model, Given):
        return f"your model {model.label}"
    return f"your model {model}" if ":" in model else f"model {model!r}"


def build_complete(
    build: Callable[[], nn.Module], name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> nn.Module:
    """Build a network; a pass of two inputs of zeros gives lazy layers their shapes."""
    module = build()
    if _lazy(module):
        with torch.no_grad():
            _answer(module.eval(), name, shape, dtype)
        module.train()
    for layer, kind in _lazy(module).items():
        raise InputError(
            f"{name}: forward does not use the lazy layer {layer!r} ({kind}), so it has no shape; use it,"
            " or give it its sizes",
            code="lazy-layer",
        )
    return module


def try_out(
    build: Callable[[], nn.Module],
    name: str,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    classes: int,
    is_own: bool,
) -> None:
    """Run two inputs of zeros through a new network. A network of the user is tested in training as well.

    The global random state does not change.
    """
    with torch.random.fork_rng(devices=[]):
        with _errors_of(name, "could not be built"):
            module = build()
        with torch.no_grad():
            _check(_answer(module.eval(), name, shape, dtype), name, classes)
        if not is_own:
            return
        if not any(weight.requires_grad for weight in module.parameters()):
            raise InputError(f"{name} has no weights to train", code="no-weights")
        logits = _answer(module.train(), name, shape, dtype)
        _check(logits, name, classes, " in training")
        with _errors_of(name, "failed in backward"):
            logits.sum().backward()  # type: ignore[no-untyped-call]


def _answer(module: nn.Module, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    has_embedding = any(isinstance(layer, nn.Embedding | nn.EmbeddingBag) for layer in module.modules())
    hint = "; dataset.integers=true keeps integers" * (has_embedding and dtype == torch.float32)
    with _errors_of(name, "failed in forward", f" (given two inputs of {shape_text(shape)}{hint})"):
        return module(torch.zeros(2, *shape, dtype=dtype))  # type: ignore[no-any-return]


def _check(logits: object, name: str, classes: int, when: str = "") -> None:
    found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if found != (2, classes):
        raise InputError(
            f"{name} answers two inputs{when} with {found}; the data has {classes} classes,"
            f" so it must be (2, {classes})",
            code="model-shape",
        )


def _lazy(module: nn.Module) -> dict[str, str]:
    """Return the types of the layers without a shape, by name."""
    return {
        place or "itself": type(layer).__name__
        for place, layer in module.named_modules()
        for weight in (*layer.parameters(recurse=False), *layer.buffers(recurse=False))
        if is_lazy(weight)
    }


@contextmanager
def _errors_of(name: str, how: str, given: str = "") -> Iterator[None]:
    """Convert an exception of the network's code into a `UserCodeError` that names the network."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise UserCodeError(f"{name} {how}: {type(error).__name__}: {error}{given}") from error
