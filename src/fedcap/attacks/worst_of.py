"""The worst of a family: in each round, the attack that does this method the most harm.

As ByzFL's optimal attacks do, candidates are tried on the server at hand: each attack of the family, at
several sizes about the honest mean. The one is sent that throws the victims' next models back the farthest;
what it does counts by the share of attackers who would not be accused for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from fedcap.attacks.base import (
    Attack,
    AttackChoice,
    Crafted,
    View,
    aim,
    build_inner,
    harm,
    inner_rows,
    registry,
)


@registry.register("worst-of")
@dataclass(frozen=True)
class WorstOf(Attack):
    """In each round, the attack of a family, and its size, that does the most harm to the method at hand."""

    family: tuple[AttackChoice, ...] = ("sign-flipping", "lie", "min-max", "ipm", "cuckoo", "frame")
    """The attacks to choose from."""
    sizes: tuple[Annotated[float, Field(gt=0)], ...] = (0.5, 1.0, 2.0)
    """How far from the honest mean each is tried, as multiples of its own distance."""

    def __post_init__(self) -> None:
        _ = self.candidates

    @cached_property
    def candidates(self) -> Mapping[str, Attack]:
        """The family, by numbers that keep the memories of equal attacks apart."""
        return {
            f"attack{number}": build_inner(choice, rows_alone=True)
            for number, choice in enumerate(self.family)
        }

    def settings(self) -> dict[str, Any]:
        """Return all options as plain values, the attacks' too."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**options, "family": [registry.canonical(choice) for choice in self.family]}

    def craft(self, view: View) -> Crafted:
        """Return the rows that do the most harm; honest ones, if none does any or a request is asked for."""
        own, memory = view.updates[view.malicious], dict(view.memory)
        if view.request:
            return Crafted(own, memory)
        before, centre, bad = view.foresee(view.updates), aim(view), view.malicious.cpu()
        best, most = own, 0.0
        for name, attack in self.candidates.items():
            crafted = inner_rows(attack, view, name)
            memory |= {key: kept for key, kept in crafted.memory.items() if key.startswith(f"{name}.")}
            for size in self.sizes:
                rows = centre + size * (crafted.rows - centre)
                after = view.foresee(view.with_malicious(rows))
                done = harm(view, before, after) * float((~after.accused[bad]).float().mean())
                if done > most:
                    best, most = rows, done
        return Crafted(best, memory)
