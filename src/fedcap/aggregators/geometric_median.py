"""The geometric median (RFA): the point with the smallest sum of distances to all updates.

    z = argmin_z Σ_i ‖z − d_i‖,    by smoothed Weiszfeld steps  z ← Σ_i β_i d_i / Σ_i β_i,
    β_i = 1 / max(ν, ‖z − d_i‖)

Reference: Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning", IEEE Transactions on
Signal Processing 2022. Withstands any M with 2M < N, whatever M it is told: z then stays within
2 (N − M) / (N − 2M) times the honest rows' largest distance from their mean. z is always a mixture Σ w_i d_i
of the rows, so its distances follow from the rows' products with each other, which are computed once, N×N.

ByzFL differs: it takes three steps from 0, with ν = 0.1 whatever the rows' size, and stops there, converged
or not. Here the steps start at a weighted mean that favours central rows, and go on until z converges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.aggregators.base import Robust, minority, registry
from fedcap.matrix import products, weighted_sum


@registry.register("geometric-median", "rfa")
@dataclass(frozen=True)
class GeometricMedian(Robust):
    """The point with the smallest sum of distances to all updates (RFA)."""

    smoothing: Annotated[float, Field(gt=0)] = 1e-6
    """ν, as a share of the median distance between updates: smaller distances count as this one."""
    tolerance: Annotated[float, Field(gt=0)] = 1e-9
    """z has converged when a step is shorter than this share of the median distance between updates."""
    steps: Annotated[int, Field(ge=1)] = 10_000
    """The largest number of steps, converged or not."""

    def withstands(self, rows: int, malicious: int) -> int:
        """Return the largest minority."""
        return minority(rows)

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the geometric median of the rows."""
        return weighted_sum(self.mixture(products(rows)), rows)

    def mixture(self, found: Tensor) -> Tensor:
        """Return the weights, N, that mix the median from the rows, given their products."""
        squares = found.diagonal()
        between = (squares[:, None] + squares - 2 * found).clamp_min(0).sqrt()
        typical = between.median(dim=1).values
        scale = typical.median()
        if scale == 0:  # most rows are equal
            return (typical == 0) / (typical == 0).sum()
        # Move the origin to the most central row: products of honest rows are then as small as their spread,
        # however large bad rows are. The first weights are small for rows far from the others, so bad rows
        # hardly count from the start.
        origin = typical.argmin()
        found = found - found[origin] - found[:, origin, None] + found[origin, origin]
        weights = _shares(typical, self.smoothing * scale)
        for _ in range(self.steps):
            towards = found @ weights
            squared = weights @ towards - 2 * towards + found.diagonal()
            last, weights = weights, _shares(squared.clamp_min(0).sqrt(), self.smoothing * scale)
            step = weights - last
            if step @ found @ step <= (self.tolerance * scale) ** 2:
                break
        return weights


def _shares(distances: Tensor, nearest: Tensor) -> Tensor:
    """Return weights in inverse proportion to the distances, with the sum 1."""
    closeness = 1 / torch.maximum(distances, nearest)
    return closeness / closeness.sum()
