"""The geometric median (RFA): the point with the smallest sum of distances to all updates.

    z = argmin_z Σ_i ‖z − d_i‖,    by smoothed Weiszfeld steps  z ← Σ_i β_i d_i / Σ_i β_i,
    β_i = 1 / max(ν, ‖z − d_i‖)

Reference: Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning", IEEE Transactions on
Signal Processing 2022. The rule tolerates any M with 2M < N and does not use M: z stays within
2 (N − M) / (N − 2M) times the honest rows' largest distance from their mean. z is always a mixture Σ w_i d_i
of the rows, so its distances follow from the N×N products of the rows, which are computed once.

ByzFL differs: it takes three steps from 0, with ν = 0.1 for rows of any size. Here the steps start at a
weighted mean that favours central rows, and continue until z converges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.aggregators.base import Robust, minority, registry
from fedcap.matrix import gram, gram_to_squared_distances, weighted_sum


@registry.register("geometric-median", "rfa")
@dataclass(frozen=True)
class GeometricMedian(Robust):
    """The point with the smallest sum of distances to all updates (RFA)."""

    smoothing: Annotated[float, Field(gt=0)] = 1e-6
    """ν, as a share of the median distance between updates."""
    tolerance: Annotated[float, Field(gt=0)] = 1e-9
    """z has converged if a step is shorter than this share of the median distance between updates."""
    steps: Annotated[int, Field(ge=1)] = 10_000
    """The largest number of steps."""

    def tolerates(self, rows: int, malicious: int) -> int:
        """Return the largest M with 2M < N."""
        return minority(rows)

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the geometric median of the rows."""
        return weighted_sum(self._mixture(gram(rows)), rows)

    def _mixture(self, products: Tensor) -> Tensor:
        """Return the weights w, N, with which the median is Σ w_i d_i, given the products of the rows."""
        typical = gram_to_squared_distances(products).sqrt().median(dim=1).values
        scale = typical.median()
        if scale == 0:  # most rows are equal
            return (typical == 0) / (typical == 0).sum()
        # Move the origin to the most central row: products of honest rows are then as small as their spread,
        # however large malicious rows are. The first weights are small for rows far from the others, so
        # malicious rows count little from the start.
        origin = typical.argmin()
        products = products - products[origin] - products[:, origin, None] + products[origin, origin]
        weights = _shares(typical, self.smoothing * scale)
        for _ in range(self.steps):
            towards = products @ weights
            squared = weights @ towards - 2 * towards + products.diagonal()
            last, weights = weights, _shares(squared.clamp_min(0).sqrt(), self.smoothing * scale)
            step = weights - last
            if step @ products @ step <= (self.tolerance * scale) ** 2:
                break
        return weights


def _shares(distances: Tensor, nearest: Tensor) -> Tensor:
    """Return weights that are inversely proportional to max(ν, distance) and sum to 1; `nearest` is ν."""
    closeness = 1 / torch.maximum(distances, nearest)
    return closeness / closeness.sum()
