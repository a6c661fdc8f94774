"""GAS: split the updates into p sub-vectors, score each against another rule's aggregate, keep the best.

    score(i) = Σ_q ‖d_i^(q) − rule(d_1^(q), …, d_N^(q))‖;    the mean of the N − M lowest scores

Reference: Liu et al., "Byzantine-robust learning on heterogeneous data via gradient splitting", ICML 2023.
Withstands what the inner rule does, but no more than the M rows it drops. A bad row is easier to tell from
honest ones in few dimensions at a time. Sub-vectors are consecutive weights, and their lengths differ by one
at most; the authors' code shuffles the weights first. The default inner rule here is the coordinate-wise
median, which of an even number of values is the mean of the two in the middle; the authors' code has Bulyan
as its default, and its median is `torch.median`, which gives the lower of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.aggregators.base import Wrapper, registry
from fedcap.matrix import mean_of


@registry.register("gas")
@dataclass(frozen=True)
class GAS(Wrapper):
    """The mean of the N − M updates nearest to another rule's aggregate of their parts."""

    chunks: Annotated[int, Field(ge=1)] = 1000
    """p: how many sub-vectors; no more than there are weights."""

    def takes(self, rows: int) -> int:
        """Return what the inner rule takes."""
        return min(rows - 1, self.inner.takes(rows))

    def withstands(self, rows: int, malicious: int) -> int:
        """Return what the inner rule withstands, but no more than are dropped."""
        return min(malicious, self.inner.withstands(rows, malicious))

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the mean of the N − M rows with the smallest scores."""
        aggregate = self._aggregate(rows, malicious)
        scores = torch.stack([self._parts(row.double() - aggregate).sum() for row in rows])
        order = scores.argsort(stable=True)
        return mean_of(rows, order[: len(rows) - malicious])

    def _aggregate(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the inner rule's aggregates of the sub-vectors, one after the other, D."""
        if self.inner.coordinate_wise:
            return self.inner(rows, malicious=malicious)
        parts = rows.tensor_split(min(self.chunks, rows.shape[1]), dim=1)
        return torch.cat([self.inner(part, malicious=malicious) for part in parts])

    def _parts(self, row: Tensor) -> Tensor:
        """Return the lengths of a row's sub-vectors, p."""
        chunks = min(self.chunks, len(row))
        width, longer = divmod(len(row), chunks)
        split = longer * (width + 1)  # as `tensor_split` does: the first ones have one weight more
        sides = row[:split].view(longer, width + 1), row[split:].view(chunks - longer, width)
        return torch.cat([torch.linalg.vector_norm(side, dim=1) for side in sides])
