"""Sleepers: honest until late, or in most rounds, to be trusted by whatever counts over rounds.

A defence that remembers (strikes, scores that fade) must neither forgive them nor need long to wake up.
Poisoned data and malformed messages cannot be had in some rounds alone: such attacks are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import Field

from fedcap.attacks.base import (
    Attack,
    AttackChoice,
    AttackWrapper,
    Crafted,
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
    """It attacks in each so-manieth round from then on, and is honest in between."""

    @cached_property
    def inner(self) -> Attack:
        """The attack to wake up to."""
        return build_inner(self.attack, rows_alone=True)

    def craft(self, view: View) -> Crafted:
        """Return the inner attack's rows, or honest ones while it sleeps."""
        if view.round < self.wake or (view.round - self.wake) % self.every:
            return Crafted(view.updates[view.malicious], view.memory)
        return inner_rows(self.inner, view)
