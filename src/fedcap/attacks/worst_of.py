"""The worst of several attacks: in each round, the one that does the most damage to this method.

As in ByzFL's optimal attacks, candidates are tried by previews on the server: each attack, at several sizes
around the honest mean. The one is sent that moves the victims' next models back the furthest; its damage is
multiplied by the share of attackers that would not be accused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import (
    Attack,
    AttackChoice,
    View,
    build_inner,
    damage,
    inner_rows,
    registry,
    target_mean,
)


@registry.register("worst-of")
@dataclass(frozen=True)
class WorstOf(Attack):
    """In each round, the attack and the size that do the most damage to the method."""

    attacks_requests: ClassVar[bool] = False

    family: tuple[AttackChoice, ...] = ("sign-flipping", "lie", "min-max", "ipm", "cuckoo", "frame")
    """The attacks to choose from."""
    sizes: tuple[Annotated[float, Field(gt=0)], ...] = (0.5, 1.0, 2.0)
    """The sizes that are tried, as multiples of each attack's distance from the honest mean."""

    def __post_init__(self) -> None:
        _ = self.candidates

    @cached_property
    def candidates(self) -> Mapping[str, Attack]:
        """The attacks by numbered names, which separate the memories of equal attacks."""
        return {
            f"attack{number}": build_inner(choice, rows_alone=True)
            for number, choice in enumerate(self.family)
        }

    def settings(self) -> dict[str, Any]:
        """Return all options as plain values, the attacks' too."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**options, "family": [registry.canonical(choice) for choice in self.family]}

    def craft(self, view: View) -> Tensor:
        """Return the rows that do the most damage; honest ones if none does any."""
        own = view.updates[view.malicious]
        before, centre, bad = view.preview(own), target_mean(view), view.malicious.cpu()
        best, most = own, 0.0
        for name, attack in self.candidates.items():
            crafted = inner_rows(attack, view, name)
            for size in self.sizes:
                rows = centre + size * (crafted - centre)
                after = view.preview(rows)
                done = damage(view, before, after) * float((~after.accused[bad]).float().mean())
                if done > most:
                    best, most = rows, done
        return best
