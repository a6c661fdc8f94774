"""Framing: make the server remove honest clients.

`drag` sends, M times, the longest row that passes, opposite to the honest rows: honest clients are then far
from whatever is measured from the mean of all rows. `copy` sends an honest client's row under other names, so
that a test for equal rows accuses its owner. The victim is the first honest participant, or takes turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fedcap.attacks.base import Attack, Geometry, View, longest, registry, unit, victims


@registry.register("frame")
@dataclass(frozen=True)
class Frame(Attack):
    """Make honest clients look guilty: drag the point that rows are measured from, or copy a row."""

    attacks_requests: ClassVar[bool] = False

    how: Literal["drag", "copy"] = "drag"
    """Drag the reference, or copy a row."""
    rotate: bool = False
    """With `copy`: whether the victim changes every round."""

    def craft(self, view: View) -> Tensor:
        """Return what makes the server see one row M times."""
        targets = victims(view)
        geometry = Geometry.of(view)
        if self.how == "copy":
            victim = targets[(view.round if self.rotate else 0) % len(targets)]
            return view.updates[victim] + (geometry.received[victim] - geometry.received[view.malicious])
        honest = geometry.rows[targets]
        away = -unit(honest.mean(dim=0)).expand(int(view.malicious.sum()), -1)
        usual = float(honest.norm(dim=1).median())
        return geometry.updates(away * longest(view, lambda size: geometry.updates(size * away), usual))
