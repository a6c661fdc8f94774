"""A little is enough (LIE): hide within the spread of the updates, d ← μ − z_max · σ per coordinate.

Reference: Baruch, Baruch, Goldberg, "A little is enough", NeurIPS 2019. Mean μ and (population)
standard deviation σ are over all N participants' honest updates, the attackers' own included, and

    s = ⌊N/2⌋ + 1 − M,    z_max = max { z : Φ(z) < (N − M − s) / (N − M) }.

When the attackers hold half of the participants, s ≤ 0 and z_max is infinite: `lie-unbounded` then
sends infinities. Only a check for finite numbers stops these, so a method's whole result can depend on
whether it has one. `lie` keeps the quantile 1/(2N) away from 0 and 1, so that z_max is always finite.

Conventions differ: ByzFL's ALIE adds 1.5 · σ, with mean and *sample* deviation of the honest updates alone;
`z=-1.5, over="benign", correction=1` gives that here. FedCAP's authors take the sample deviation of all
participants: `correction=1`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedcap.attacks.base import Attack, View, registry


@registry.register("lie", "a-little-is-enough", "alie")
@dataclass(frozen=True)
class LIE(Attack):
    """Send mean − z · std of all updates, z just small enough to hide (or as given)."""

    bounded: ClassVar[bool] = True

    z: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """How many deviations below the mean; the largest number that hides, z_max, if not given."""
    over: Literal["all", "benign"] = "all"
    """Mean and deviation are of the honest updates of all participants, or of honest clients only."""
    correction: Literal[0, 1] = 0
    """0 for the population's deviation, 1 for the sample's."""

    def z_max(self, participants: int, malicious: int) -> float:
        """Return the largest z that still hides among the honest updates."""
        benign = participants - malicious
        supporters = participants // 2 + 1 - malicious
        quantile = (benign - supporters) / benign if benign else 1.0
        if self.bounded:
            margin = 1 / (2 * participants)
            quantile = min(max(quantile, margin), 1 - margin)
        if quantile >= 1:
            return math.inf
        return NormalDist().inv_cdf(quantile) if quantile > 0 else -math.inf

    def craft(self, view: View) -> Tensor:
        """Return the one vector that all malicious clients send."""
        z = self.z_max(len(view.updates), int(view.malicious.sum())) if self.z is None else self.z
        rows = view.benign if self.over == "benign" and not bool(view.malicious.all()) else view.updates
        std, mean = torch.std_mean(rows, dim=0, correction=self.correction)
        return mean - z * std


@registry.register("lie-unbounded")
@dataclass(frozen=True)
class LIEUnbounded(LIE):
    """LIE as printed: z_max is infinite once attackers hold half of the participants."""

    bounded: ClassVar[bool] = False
