"""Clustered: two clusters of updates by direction, and the mean of the larger one.

Complete-linkage agglomerative clustering with the distance 1 − cosine. Of two clusters of the same size, the
one whose updates are shorter on average is used. Reference: Sattler, Müller, Wiegand, Samek, "On the
Byzantine robustness of clustered federated learning", ICASSP 2020; complete linkage as in Li et al.,
"FedCAP", ACSAC 2024.

The rule guarantees nothing against arbitrary rows. It works for 2M < N if the malicious rows point one way
and the honest ones another. It ignores lengths: a row with the honest direction and N times the length (MR)
is averaged in. Malicious rows with different directions may end up in a cluster with honest ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.aggregators.base import Robust, registry
from fedcap.matrix import gram, gram_to_cosines, mean_of


@registry.register("clustered", "clusteredfl")
@dataclass(frozen=True)
class Clustered(Robust):
    """The mean of the larger of two clusters of updates, clustered by direction."""

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the mean of the larger cluster."""
        products = gram(rows, exact=False)
        if not _is_exact_enough(products):
            products = gram(rows)
        lengths = products.diagonal().sqrt()
        cluster = _two_clusters(1 - gram_to_cosines(products)) if len(rows) > 1 else torch.zeros(1)
        members = [(cluster == k).nonzero().flatten() for k in (0, 1)]
        larger = max((m for m in members if len(m)), key=lambda m: (len(m), -float(lengths[m].mean())))
        return mean_of(rows, larger)


def _is_exact_enough(products: Tensor) -> bool:
    """Return whether single precision suffices: no row out of range, no two rows nearly parallel."""
    squares = products.diagonal()
    if not bool((squares.isfinite() & (squares > 1e-30)).all()):
        return False
    return int((gram_to_cosines(products) > 0.99).sum()) == len(products)


def _two_clusters(distances: Tensor) -> Tensor:
    """Return each row's cluster, 0 or 1, by complete linkage."""
    from sklearn.cluster import AgglomerativeClustering

    clustering = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete")
    return torch.from_numpy(clustering.fit_predict(distances.cpu().numpy())).to(distances.device)
