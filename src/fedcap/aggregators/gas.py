"""GAS: split the updates into p sub-vectors, score each update against another rule's aggregate, and average.

    score(i) = Σ_q ‖d_i^(q) − rule(d_1^(q), …, d_N^(q))‖;    the mean of the N − M rows with the lowest scores

Reference: Liu et al., "Byzantine-robust learning on heterogeneous data via gradient splitting", ICML 2023.
Malicious rows are easier to distinguish from honest ones in few dimensions at a time. The rule tolerates what
the inner rule tolerates, but at most the M rows that it drops. Sub-vectors are consecutive weights, and their
lengths differ by at most one; the authors' code shuffles the weights first. The default inner rule here is
the coordinate-wise median, which of an even number of values is the mean of the middle two. The authors'
default is Bulyan, and their median is `torch.median`, the lower of the two.
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
    """p: the number of sub-vectors; at most the number of weights."""

    def max_malicious(self, rows: int) -> int:
        """Return the largest M of the inner rule."""
        return min(rows - 1, self.inner.max_malicious(rows))

    def tolerates(self, rows: int, malicious: int) -> int:
        """Return what the inner rule tolerates, but at most M."""
        return min(malicious, self.inner.tolerates(rows, malicious))

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the mean of the N − M rows with the smallest scores."""
        aggregate = self._aggregate(rows, malicious)
        scores = torch.stack([self._part_norms(row.double() - aggregate).sum() for row in rows])
        order = scores.argsort(stable=True)
        return mean_of(rows, order[: len(rows) - malicious])

    def _aggregate(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the inner rule's aggregates of the sub-vectors, concatenated, D."""
        if self.inner.coordinate_wise:
            return self.inner(rows, malicious=malicious)
        parts = rows.tensor_split(min(self.chunks, rows.shape[1]), dim=1)
        return torch.cat([self.inner(part, malicious=malicious) for part in parts])

    def _part_norms(self, row: Tensor) -> Tensor:
        """Return the lengths of a row's sub-vectors, p."""
        chunks = min(self.chunks, len(row))
        width, longer = divmod(len(row), chunks)
        split = longer * (width + 1)  # as `tensor_split` does: the first sub-vectors have one weight more
        parts = row[:split].view(longer, width + 1), row[split:].view(chunks - longer, width)
        return torch.cat([torch.linalg.vector_norm(part, dim=1) for part in parts])
