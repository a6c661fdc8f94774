"""Inner product manipulation (IPM): send −ε times the honest mean, against the true direction.

Reference: Xie, Koyejo, Gupta, "Fall of empires", UAI 2019. The mean over all N rows becomes
(N − M(1 + ε)) / (N (N − M)) · Σ honest, which points backwards once ε > N/M − 1; ε = N by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, View, registry


@registry.register("ipm")
@dataclass(frozen=True)
class IPM(Attack):
    """Send −epsilon times the mean of the honest updates (epsilon = N by default)."""

    uses_honest_updates: ClassVar[bool] = False

    epsilon: Annotated[float, Field(gt=0)] | None = None
    """ε: how many times as long as the honest mean; the number of participants if not given."""

    def craft(self, view: View) -> Tensor:
        """Return the one vector that all malicious clients send."""
        # If no row is honest, take the mean of all rows instead.
        against = view.updates if bool(view.malicious.all()) else view.benign
        epsilon = len(view.updates) if self.epsilon is None else self.epsilon
        return -epsilon * against.mean(dim=0)
