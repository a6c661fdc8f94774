"""A network given from Python: an `nn.Module`, or a function or class that builds one.

A function or class is called under the run's seed, as a named network is. A module is copied when it is
given, and its own weights are the common start, whatever the seed. What other processes can import is kept
as `module:name`; of anything else a run's directory keeps a name and a hash, and it is resumed from Python.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from fedcap import fingerprint
from fedcap.errors import InputError
from fedcap.registry import load

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
