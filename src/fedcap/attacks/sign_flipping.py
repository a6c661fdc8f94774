"""Sign flipping (SF): a malicious client sends its honest update with the sign turned, d ← −d."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, registry


@registry.register("sign-flipping", "SF")
@dataclass(frozen=True)
class SignFlipping(Attack):
    """Send the honest update with its sign turned: d ← −scale · d."""

    scale: Annotated[float, Field(gt=0)] = 1.0

    def craft(self, updates: Tensor, malicious: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return −scale · d for each malicious row d."""
        return -self.scale * updates[malicious]
