"""Krum: the one update that has its N − M − 2 nearest others closest to it.

    score(i) = Σ_{j ∈ nearest N − M − 2 others of i} ‖d_i − d_j‖²,    d_{argmin score}

Reference: Blanchard et al., "Machine learning with adversaries", NeurIPS 2017. Withstands M, as proven
there, if 2M + 2 < N. Told a larger M it counts fewer neighbours, and bad rows that are alike have
each other as neighbours: it withstands N − M − 3 then. It takes any M < N − 2, since every row needs a
neighbour to be judged by. ByzFL differs: its Krum counts the N − M − 1 nearest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.aggregators.base import Robust, registry
from fedcap.matrix import squared_distances


def krum_scores(rows: Tensor, malicious: int) -> Tensor:
    """Return each row's sum of squared distances to its N − M − 2 nearest others, N."""
    distances = squared_distances(rows).fill_diagonal_(torch.inf)
    neighbours = len(rows) - malicious - 2
    return distances.topk(neighbours, dim=1, largest=False).values.sum(dim=1)


@registry.register("krum")
@dataclass(frozen=True)
class Krum(Robust):
    """The one update whose N − M − 2 nearest others are closest to it."""

    def takes(self, rows: int) -> int:
        """Return N − 3: every row needs a neighbour to be judged by."""
        return rows - 3

    def withstands(self, rows: int, malicious: int) -> int:
        """Return the smaller of M and N − M − 3."""
        return min(malicious, rows - malicious - 3)

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the row with the smallest score."""
        return rows[int(krum_scores(rows, malicious).argmin())].clone()
