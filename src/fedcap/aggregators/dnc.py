"""Divide and conquer (DnC): drop the updates with the largest projections on the updates' main direction.

On a random sample of the columns, centred: v is the top right singular vector, the outlier score of row i is
((d_i − mean) · v)², and the ⌈c M⌉ rows with the largest scores are dropped. The result is the mean of the
rows that no iteration dropped. Reference: Shejwalkar, Houmansadr, "Manipulating the Byzantine", NDSS 2021.

The scores come from the N×N products of the centred rows: their top eigenvector u with eigenvalue σ² gives
σ² u_i² = ((d_i − mean) · v)². The sampled columns change each round (see `base.generator_for`).

The rule guarantees nothing against arbitrary rows. It works for 2M < N if the malicious rows deviate in one
common direction that shows in the sampled columns. If one malicious row is much longer than the others, v is
its direction, and the other malicious rows are missed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.aggregators.base import Robust, generator_for, registry
from fedcap.matrix import gram, mean_of


@registry.register("dnc", "divide-and-conquer")
@dataclass(frozen=True)
class DnC(Robust):
    """The mean without the M updates that deviate most along the updates' main direction."""

    columns: Annotated[int, Field(ge=1)] = 10_000
    """The number of sampled columns; all columns, if there are fewer."""
    factor: Annotated[float, Field(gt=0)] = 1.0
    """c: the number of rows to drop per assumed malicious row."""
    iterations: Annotated[int, Field(ge=1)] = 1
    """The number of times that columns are sampled and rows dropped."""
    seed: int = 0
    """The seed of the sampling."""

    def max_malicious(self, rows: int) -> int:
        """Return the largest M for which one row remains after ⌈c M⌉ are dropped."""
        return min(rows - 1, math.floor((rows - 1) / self.factor))

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the mean of the rows that no iteration dropped; if none, of those dropped least often."""
        drop = math.ceil(self.factor * malicious)
        generator = generator_for(self.seed, rows)
        dropped = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        for _ in range(self.iterations):
            sample = torch.randperm(rows.shape[1], generator=generator)[: self.columns]
            scores = outlier_scores(rows[:, sample.to(rows.device)])
            dropped[scores.argsort(descending=True, stable=True)[:drop]] += 1
        return mean_of(rows, (dropped == dropped.min()).nonzero().flatten())


def outlier_scores(rows: Tensor) -> Tensor:
    """Return the squared projections of the centred rows on their main direction, N."""
    exact = rows.double()
    values, vectors = torch.linalg.eigh(gram(exact - exact.mean(dim=0)))
    scores: Tensor = values[-1].clamp_min(0) * vectors[:, -1].square()
    return scores
