"""Divide and conquer (DnC): drop the updates that stand out most along the updates' main direction.

On a random sample of the columns, centred: v is the top right singular vector, the outlier score of row i
is ((d_i − mean) · v)², and the ⌈c M⌉ rows with the largest scores are dropped. The mean of the rows that
are dropped in none of the `iterations` remains.

Reference: Shejwalkar, Houmansadr, "Manipulating the Byzantine", NDSS 2021. It promises nothing against
arbitrary rows. It holds for 2M < N if the bad rows deviate together, so that all stand out along one
direction, and in the sampled columns; if one bad row is far longer than the others, the direction is its
own, and the others are missed. After ⌈c M⌉ rows are dropped, one must be left. The sampled columns change
each round (see `base.draw`).

The scores come from the N×N products of the centred rows: their top eigenvector u with eigenvalue σ² gives
σ² u_i² = ((d_i − mean) · v)².
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.aggregators.base import Robust, draw, registry
from fedcap.matrix import mean_of, products


@registry.register("dnc", "divide-and-conquer")
@dataclass(frozen=True)
class DnC(Robust):
    """The mean without the M updates that stand out most along the updates' main direction."""

    columns: Annotated[int, Field(ge=1)] = 10_000
    """How many columns are sampled; all, if there are no more."""
    factor: Annotated[float, Field(gt=0)] = 1.0
    """c: how many rows to drop for each one assumed malicious."""
    iterations: Annotated[int, Field(ge=1)] = 1
    """How often columns are sampled and rows dropped."""
    seed: int = 0
    """The seed of the samples."""

    def takes(self, rows: int) -> int:
        """Return the largest M for which a row is left after ⌈c M⌉ are dropped."""
        return min(rows - 1, math.floor((rows - 1) / self.factor))

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the mean of the rows dropped in no iteration (or, if none is left, the least often)."""
        drop = math.ceil(self.factor * malicious)
        chance = draw(self.seed, rows)
        dropped = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        for _ in range(self.iterations):
            sample = torch.randperm(rows.shape[1], generator=chance)[: self.columns]
            scores = outlier_scores(rows[:, sample.to(rows.device)])
            dropped[scores.argsort(descending=True, stable=True)[:drop]] += 1
        return mean_of(rows, (dropped == dropped.min()).nonzero().flatten())


def outlier_scores(rows: Tensor) -> Tensor:
    """Return the squared projections of the centred rows on their main direction, N."""
    exact = rows.double()
    values, vectors = torch.linalg.eigh(products(exact - exact.mean(dim=0)))
    scores: Tensor = values[-1].clamp_min(0) * vectors[:, -1].square()
    return scores
