"""An attack round another one: what malicious clients send is the inner attack's, changed or held back."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from pydantic import InstanceOf
from torch import Tensor

from fedcap.attacks.base import Attack, Crafted, View, registry
from fedcap.errors import InputError
from fedcap.state import Samples, owned, under

AttackChoice = str | dict[str, Any] | InstanceOf[Attack] | InstanceOf[type[Any]]
"""An attack's name, a table of its name and options, an object, or a class."""
BEYOND_ROWS = ("poison", "poison_labels", "wire")
"""What an attack overrides to change more than rows."""


@dataclass(frozen=True)
class AttackWrapper(Attack):
    """An attack that has another one, which is built at once, so that mistakes in it are found early."""

    attack: AttackChoice = "min-max"
    """The inner attack: a name, a table of its name and options, or an object."""

    def __post_init__(self) -> None:
        _ = self.inner

    @cached_property
    def inner(self) -> Attack:
        """The inner attack."""
        return build_inner(self.attack)

    def settings(self) -> dict[str, Any]:
        """Return all options as plain values, the inner attack's too."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**options, "attack": registry.canonical(self.attack)}

    def poison(self, samples: Samples, classes: int, generator: torch.Generator) -> Samples:
        """Return what the inner attack trains on."""
        return self.inner.poison(samples, classes, generator)

    def wire(self, row: Tensor) -> object:
        """Return what the inner attack transmits."""
        return self.inner.wire(row)


def build_inner(choice: AttackChoice, rows_alone: bool = False) -> Attack:
    """Build an attack that is part of another one; refuse what would be lost there.

    With `rows_alone` it must be one that changes nothing but rows: those can be sent in some rounds alone.
    """
    inner = registry.build(choice)
    name = registry.named(choice)[0]
    if inner.claim is not None:
        raise InputError(f"{name} within another attack cannot claim samples: set claim on the outer one")
    innermost = inner
    while isinstance(innermost, AttackWrapper):
        innermost = innermost.inner
    beyond = (getattr(type(innermost), part) is not getattr(Attack, part) for part in BEYOND_ROWS)
    if rows_alone and any(beyond):
        raise InputError(f"{name} cannot be switched on and off by rounds: choose an attack on updates")
    return inner


def inner_rows(attack: Attack, view: View, name: str = "inner") -> Crafted:
    """Return the rows of an inner attack, M×D, with the memory of the outer one after it.

    What the inner attack remembers lies there under a name of its own.
    """
    found = attack.craft(replace(view, memory=owned(name, view.memory)))
    crafted = found if isinstance(found, Crafted) else Crafted(found, owned(name, view.memory))
    others = {key: kept for key, kept in view.memory.items() if not key.startswith(f"{name}.")}
    rows = crafted.rows.to(view.updates).expand(int(view.malicious.sum()), -1)
    return Crafted(rows, {**others, **under(name, crafted.memory)})
