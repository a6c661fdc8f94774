"""Model replacement (MR): scale the honest update up, d ← N · d, so that it outweighs the others.

Reference: Bagdasaryan et al., "How to backdoor federated learning", AISTATS 2020; as an untargeted
attack in Li et al., "Ditto", ICML 2021. N is the number of participants unless `scale` says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, registry


@registry.register("model-replacement", "MR")
@dataclass(frozen=True)
class ModelReplacement(Attack):
    """Scale the honest update by the number of participants: d ← N · d."""

    scale: Annotated[float, Field(gt=0)] | None = None

    def craft(self, updates: Tensor, malicious: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return scale · d for each malicious row d."""
        scale = len(updates) if self.scale is None else self.scale
        return scale * updates[malicious]
