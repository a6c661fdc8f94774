"""Multi-Krum: the mean of the Q = N − M updates with the smallest Krum scores.

Reference: Blanchard et al., "Machine learning with adversaries", NeurIPS 2017; Q = N − M as in Li et al.,
"FedCAP", ACSAC 2024. What `krum` says about M and about ByzFL holds here too.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedcap.aggregators.base import registry
from fedcap.aggregators.krum import Krum, krum_scores
from fedcap.matrix import mean_of


@registry.register("multi-krum", "m-krum", "mkrum")
@dataclass(frozen=True)
class MultiKrum(Krum):
    """The mean of the N − M updates that are closest to their nearest neighbours."""

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the mean of the N − M rows with the smallest scores."""
        order = krum_scores(rows, malicious).argsort(stable=True)
        return mean_of(rows, order[: len(rows) - malicious])
