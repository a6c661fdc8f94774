"""Norm clipping: the mean of the updates, each clipped to length τ.

    (1/N) Σ_i d_i · min(1, τ / ‖d_i‖)

Reference: Sun et al., "Can you really backdoor federated learning?", 2019. M malicious rows move the mean by
at most M τ / N, in any direction. The rule tolerates any M with 2M < N in this sense: the result is at most τ
long, and the default τ, the median length, is at most the length of the longest honest row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.aggregators.base import Robust, minority, registry
from fedcap.matrix import distances_to, weighted_sum


def clipping_factors(lengths: Tensor, threshold: float | None) -> Tensor:
    """Return min(1, τ / length), N; without a threshold, τ is the median length."""
    limit = lengths.quantile(0.5) if threshold is None else lengths.new_tensor(threshold)
    return torch.where(lengths > limit, limit / lengths, 1)


@registry.register("norm-clipping")
@dataclass(frozen=True)
class NormClipping(Robust):
    """The mean of the updates, each clipped to the threshold (the median length by default)."""

    threshold: Annotated[float, Field(gt=0)] | None = None
    """τ; the median length if not given."""

    def tolerates(self, rows: int, malicious: int) -> int:
        """Return the largest M with 2M < N."""
        return minority(rows)

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the mean of the clipped rows."""
        factors = clipping_factors(distances_to(rows), self.threshold)
        return weighted_sum(factors / len(rows), rows)
