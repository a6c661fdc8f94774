"""Framing: make the server remove honest clients.

`drag` sends, M times, a row as long as passes, opposite to where the honest rows lie: what is measured from
the mean of all rows then finds the honest far out. `copy` sends an honest client's row under other names, so
that a test for equal rows hits its owner. The victim is the first honest participant, or takes turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedcap.attacks.base import Attack, Scene, View, longest, registry, unit, victims


@registry.register("frame")
@dataclass(frozen=True)
class Frame(Attack):
    """Make honest clients look guilty: drag the point that rows are measured from, or copy a row."""

    how: Literal["drag", "copy"] = "drag"
    """Drag the reference, or copy a row."""
    rotate: bool = False
    """With `copy`: whether each round has another victim."""

    def craft(self, view: View) -> Tensor:
        """Return what makes the server see one row M times; of those asked for a request, honest rows."""
        if view.request:
            return view.updates[view.malicious]
        aimed = victims(view)
        scene = Scene.of(view)
        if self.how == "copy":
            victim = aimed[(view.round if self.rotate else 0) % len(aimed)]
            return view.updates[victim] + (scene.received[victim] - scene.received[view.malicious])
        honest = scene.rows[aimed]
        away = -unit(honest.mean(dim=0)).expand(int(view.malicious.sum()), -1)
        usual = float(honest.norm(dim=1).median())
        return scene.updates(away * longest(view, lambda size: scene.updates(size * away), usual))
