"""Clustered: two clusters by direction, and the mean of the larger one.

Complete-linkage agglomerative clustering of the updates into two by 1 − cosine. Of two clusters of the
same size the one whose updates are shorter on average is kept.

Reference: Sattler, Müller, Wiegand, Samek, "On the Byzantine robustness of clustered federated
learning", ICASSP 2020; complete linkage as in Li et al., "FedCAP", ACSAC 2024. It promises nothing against
arbitrary rows. It holds for 2M < N if the bad rows point one way and the honest ones another. Length is
not looked at: a row that points the honest way and is N times as long (MR) is averaged in. Bad rows that
each point elsewhere may end up in a cluster with honest ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.aggregators.base import Robust, registry
from fedcap.matrix import mean_of, products


@registry.register("clustered", "clusteredfl")
@dataclass(frozen=True)
class Clustered(Robust):
    """The mean of the larger of two clusters of updates, told apart by their directions."""

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the mean of the larger cluster."""
        found = products(rows, exact=False)
        if not tells_apart(found):
            found = products(rows)
        lengths = found.diagonal().sqrt()
        cluster = two_clusters(1 - cosines(found)) if len(rows) > 1 else torch.zeros(1)
        sides = [(cluster == side).nonzero().flatten() for side in (0, 1)]
        larger = max((side for side in sides if len(side)), key=lambda s: (len(s), -float(lengths[s].mean())))
        return mean_of(rows, larger)


def tells_apart(found: Tensor) -> bool:
    """Whether products of single precision are good enough: no row out of range, no two nearly parallel."""
    squares = found.diagonal()
    if not bool((squares.isfinite() & (squares > 1e-30)).all()):
        return False
    return int((cosines(found) > 0.99).sum()) == len(found)


def cosines(found: Tensor) -> Tensor:
    """Return the cosines between rows, N×N, given their products; a row of zeros has 0 with others."""
    lengths = found.diagonal().sqrt()
    inverse = torch.where(lengths > 0, 1 / lengths, 0)
    return (found * inverse * inverse[:, None]).clamp(-1, 1).fill_diagonal_(1)


def two_clusters(distances: Tensor) -> Tensor:
    """Return each row's cluster, 0 or 1, by complete linkage."""
    from sklearn.cluster import AgglomerativeClustering

    clustering = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete")
    return torch.from_numpy(clustering.fit_predict(distances.cpu().numpy())).to(distances.device)
