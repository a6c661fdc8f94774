"""Inflate: send one's own honest direction, only further out, and move all clients further out with it.

Measured from the server's global model, where FedCAP compares, an attacker whose honest row is d sends

    s · max(‖d‖, median_i ‖d_i‖) · d / ‖d‖,    s > 1.

A method that mixes models of the most similar clients mixes this one in with full weight, because it points
where similar clients point. If mixing lets a contributor be further out than the receivers, these follow, and
the attacker moves ahead of them again: norms grow by the same factor each round, until honest training
overflows and honest clients are removed for it. Updates are kept short enough to pass tests of how far a
client goes in one round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, Geometry, View, registry, unit, victims
from fedcap.matrix import SHORTEST


@registry.register("inflate")
@dataclass(frozen=True)
class Inflate(Attack):
    """Send the direction of the own honest model, only further out, and move all clients with it."""

    attacks_requests: ClassVar[bool] = False

    stretch: Annotated[float, Field(gt=1)] = 1.5
    """How many times as far out as the own honest row or the median victim's, whichever is longer."""
    most: Annotated[float, Field(gt=0)] = 1.7
    """The longest update, as a multiple of the victims' longest median so far."""

    def craft(self, view: View) -> Tensor:
        """Return each attacker's row."""
        geometry, targets = Geometry.of(view), victims(view)
        rows = geometry.rows
        own, usual = rows[view.malicious], _median_length(rows[targets])
        far = self.stretch * own.norm(dim=1, keepdim=True).maximum(usual)
        updates = geometry.updates(far * unit(own))
        longest = _median_length(view.updates[targets])
        if "longest" in view.memory:
            longest = longest.maximum(view.memory["longest"].to(longest))
        lengths = updates.norm(dim=1, keepdim=True).clamp_min(SHORTEST)
        view.memory["longest"] = longest
        shortened: Tensor = updates * (self.most * longest / lengths).clamp_max(1.0)
        return shortened


def _median_length(rows: Tensor) -> Tensor:
    """Return the median length of the rows that are finite; 0 if none is."""
    lengths = rows.norm(dim=1)
    lengths = lengths[lengths.isfinite()]
    return lengths.median() if len(lengths) else rows.new_zeros(())
