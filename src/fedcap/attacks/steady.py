"""Steady drift: one fixed sign vector for the whole run, with a size that follows the models received.

A step is at first no longer than an honest one; the damage comes from the constant direction. The attackers
need only their own updates and the models that they receive: if these move along their vector, the attackers
send longer rows, otherwise shorter ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, Geometry, View, registry, unit

HARDER, SOFTER = 1.25, 0.7


@registry.register("steady")
@dataclass(frozen=True)
class Steady(Attack):
    """One fixed sign vector for the whole run, with a size that follows the models received."""

    attacks_requests: ClassVar[bool] = False

    share: Annotated[float, Field(gt=0)] = 1.0
    """The first round's norm, as a multiple of the attackers' own honest updates' norm."""
    most: Annotated[float, Field(gt=0)] = 4.0
    """The largest norm, as such a multiple."""

    def craft(self, view: View) -> Tensor:
        """Return one vector for all attackers."""
        own = view.updates[view.malicious]
        start = -own.mean(dim=0).sign()
        way = unit(view.memory.get("way", start).to(own))
        received = Geometry.of(view, blind=True).received[view.malicious]
        reached = float((received @ way).mean())
        share = float(view.memory["share"]) if "share" in view.memory else self.share
        if "reached" in view.memory:
            moved = reached > float(view.memory["reached"])
            share = min(self.most, share * HARDER) if moved else share * SOFTER
        view.memory.update(way=way, share=torch.tensor(share), reached=torch.tensor(reached))
        row: Tensor = share * own.norm(dim=1).median() * way
        return row
