"""Centred clipping: from the origin, step by the mean of the differences, each clipped to length τ.

    v ← v + (1/N) Σ_i (d_i − v) · min(1, τ / ‖d_i − v‖),    from v = 0, a few times

Reference: Karimireddy, He, Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021.
Convergence is proven for M/N ≤ 0.1. M malicious rows change a step by at most M τ / N. The rule tolerates any
M with 2M < N in this sense: after k steps v is at most k τ long. The default τ, the median distance from v,
is at most the largest honest distance, so v is at most 2^k − 1 times as long as the longest honest row.

ByzFL differs in two ways. It uses τ = 100 and one step; `threshold=100, steps=1` gives the same here. And
like the paper, each call starts from the previous aggregate. Here every round starts at 0: updates are
already differences from the last model, and a rule is a function of its arguments only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedcap.aggregators.base import Robust, minority, registry
from fedcap.aggregators.norm_clipping import clipping_factors
from fedcap.matrix import distances_to, weighted_sum


@registry.register("centred-clipping", "centered-clipping")
@dataclass(frozen=True)
class CentredClipping(Robust):
    """A few steps from the origin by the mean of the updates' differences from it, each clipped."""

    threshold: Annotated[float, Field(gt=0)] | None = None
    """τ; if not given, the median distance from v in each step."""
    steps: Annotated[int, Field(ge=1)] = 3
    """The number of steps."""

    def tolerates(self, rows: int, malicious: int) -> int:
        """Return the largest M with 2M < N."""
        return minority(rows)

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return v after the last step."""
        centre = rows.new_zeros(rows.shape[1])
        for _ in range(self.steps):
            factors = clipping_factors(distances_to(rows, centre), self.threshold) / len(rows)
            centre = float(1 - factors.sum()) * centre + weighted_sum(factors, rows)
        return centre
