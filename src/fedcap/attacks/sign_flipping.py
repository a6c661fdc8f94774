"""Sign flipping (SF): a malicious client sends its honest update with the sign turned, d ← −d.

Reference: Li et al., "FedCAP", ACSAC 2024. Conventions differ: ByzFL's sign flipping sends one vector, minus
the mean of the honest updates, from every attacker; `ipm` with `epsilon=1` gives that here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, View, registry


@registry.register("sign-flipping", "SF")
@dataclass(frozen=True)
class SignFlipping(Attack):
    """Send the honest update with its sign turned: d ← −scale · d."""

    scale: Annotated[float, Field(gt=0)] = 1.0
    """How many times as long as the honest update."""

    def craft(self, view: View) -> Tensor:
        """Return −scale · d for each malicious row d."""
        return -self.scale * view.updates[view.malicious]
