"""Sleepers: honest until late, or in most rounds, so that a defence that counts over rounds trusts them.

A defence that remembers (strikes, scores that fade) must neither forgive them nor react late. Poisoned data
and malformed messages cannot be limited to some rounds: such attacks are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import (
    Attack,
    AttackChoice,
    AttackWrapper,
    View,
    build_inner,
    inner_rows,
    registry,
)


@registry.register("sleeper")
@dataclass(frozen=True)
class Sleeper(AttackWrapper):
    """Honest until a round, then another attack, in every round or in some."""

    attack: AttackChoice = "ipm"
    """The attack to wake up to: a name, a table of its name and options, or an object."""
    wake: Annotated[int, Field(ge=1)] = 10
    """The first round in which it attacks."""
    every: Annotated[int, Field(ge=1)] = 1
    """From then on it attacks in one of this number of rounds, and is honest in between."""

    @cached_property
    def inner(self) -> Attack:
        """The attack to wake up to."""
        return build_inner(self.attack, rows_alone=True)

    def craft(self, view: View) -> Tensor:
        """Return the inner attack's rows, or honest ones while it sleeps."""
        if view.round < self.wake or (view.round - self.wake) % self.every:
            return view.updates[view.malicious]
        return inner_rows(self.inner, view)
