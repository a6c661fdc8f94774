"""Krum: the one update with the smallest sum of squared distances to its N − M − 2 nearest neighbours.

    score(i) = Σ_{j ∈ nearest N − M − 2 others of i} ‖d_i − d_j‖²,    d_{argmin score}

Reference: Blanchard et al., "Machine learning with adversaries", NeurIPS 2017, which proves that the rule
tolerates M if 2M + 2 < N. With a larger M it counts fewer neighbours, and equal malicious rows are each
other's neighbours: it then tolerates N − M − 3. It accepts any M < N − 2, because every row needs one
neighbour. ByzFL's Krum counts the N − M − 1 nearest neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.aggregators.base import Robust, registry
from fedcap.matrix import squared_distances


def krum_scores(rows: Tensor, malicious: int) -> Tensor:
    """Return each row's sum of squared distances to its N − M − 2 nearest neighbours, N."""
    distances = squared_distances(rows).fill_diagonal_(torch.inf)
    neighbours = len(rows) - malicious - 2
    return distances.topk(neighbours, dim=1, largest=False).values.sum(dim=1)


@registry.register("krum")
@dataclass(frozen=True)
class Krum(Robust):
    """The one update that is closest to its N − M − 2 nearest neighbours."""

    def max_malicious(self, rows: int) -> int:
        """Return N − 3: every row needs one neighbour."""
        return rows - 3

    def tolerates(self, rows: int, malicious: int) -> int:
        """Return the smaller of M and N − M − 3."""
        return min(malicious, rows - malicious - 3)

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the row with the smallest score."""
        return rows[int(krum_scores(rows, malicious).argmin())].clone()
