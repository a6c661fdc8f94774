"""Steady drift: one fixed sign vector all run long, sized by what comes of it.

A step is at first no longer than an honest one; what counts is that all of them point one way. The attackers
need to know nothing but their own updates and the models they receive: if these move along their vector, they
push harder, else they hold back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from fedcap.attacks.base import Attack, Crafted, Scene, View, registry, unit

HARDER, SOFTER = 1.25, 0.7


@registry.register("steady")
@dataclass(frozen=True)
class Steady(Attack):
    """One fixed sign vector all run long, sized by feedback from the models received."""

    share: Annotated[float, Field(gt=0)] = 1.0
    """The first round's length, as a multiple of the attackers' own honest updates'."""
    most: Annotated[float, Field(gt=0)] = 4.0
    """The longest it grows to, as such a multiple."""

    def craft(self, view: View) -> Crafted:
        """Return one vector for all attackers; of those asked for a request, the honest one."""
        if view.request:
            return Crafted(view.updates[view.malicious], view.memory)
        own = view.updates[view.malicious]
        start = -own.mean(dim=0).sign()
        way = unit(view.memory.get("way", start).to(own))
        received = Scene.of(view, blind=True).received[view.malicious]
        reached = float((received @ way).mean())
        share = float(view.memory["share"]) if "share" in view.memory else self.share
        if "reached" in view.memory:
            moved = reached > float(view.memory["reached"])
            share = min(self.most, share * HARDER) if moved else share * SOFTER
        kept = {"way": way, "share": torch.tensor(share), "reached": torch.tensor(reached)}
        return Crafted(share * own.norm(dim=1).median() * way, kept)
