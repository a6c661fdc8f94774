"""The mean, weighted by sample counts: Σ_i n_i d_i / Σ_i n_i.

Reference: McMahan et al., "Communication-efficient learning of deep networks from decentralized data",
AISTATS 2017. It tolerates no malicious row: a single one can move it anywhere. Rows that are not finite are
an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcap.aggregators.base import Aggregator, registry
from fedcap.errors import InputError
from fedcap.matrix import Values, finite_rows, to_floats, weighted_mean


@registry.register("mean")
@dataclass(frozen=True)
class Mean(Aggregator):
    """The weighted mean of all updates, as in FedAvg; it tolerates no malicious row."""

    coordinate_wise: ClassVar[bool] = True

    def __call__(self, updates: Values, weights: Values | None = None, malicious: int = 0) -> Tensor:
        """Return the weighted mean of the rows."""
        updates = to_floats(updates)
        counts = torch.ones(len(updates)) if weights is None else to_floats(weights)
        mean = weighted_mean(updates, counts)
        if not bool(mean.sum().isfinite()) and not bool(finite_rows(updates).all()):
            raise InputError(
                "the mean needs finite rows: remove the rows with NaN or infinity", code="not-finite"
            )
        return mean
