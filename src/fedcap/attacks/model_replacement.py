"""Model replacement (MR): scale the honest update up, d ← N · d, so that it outweighs the others.

Reference: Bagdasaryan et al., "How to backdoor federated learning", AISTATS 2020; as an untargeted
attack in Li et al., "Ditto", ICML 2021. N is the number of participants unless `scale` says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, View, registry


@registry.register("model-replacement", "MR")
@dataclass(frozen=True)
class ModelReplacement(Attack):
    """Scale the honest update by the number of participants: d ← N · d."""

    scale: Annotated[float, Field(gt=0)] | None = None
    """The factor of the update; the number of participants if not given."""

    def craft(self, view: View) -> Tensor:
        """Return scale · d for each malicious row d."""
        scale = len(view.updates) if self.scale is None else self.scale
        return scale * view.updates[view.malicious]
