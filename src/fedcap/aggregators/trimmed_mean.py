"""The coordinate-wise trimmed mean: cut the largest and the smallest values, and average the others.

Reference: Yin et al., "Byzantine-robust distributed learning", ICML 2018. There M values are cut at each end
(`cut="all"`, as in ByzFL), which needs 2M < N and tolerates M. Li et al., "FedCAP", ACSAC 2024, cut ⌊M/2⌋ at
each end, M in total, which is the default here. It tolerates ⌊M/2⌋: of M malicious rows that deviate in the
same direction (IPM, a row of 1e30) half remain in the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedcap.aggregators.base import Robust, registry
from fedcap.matrix import blocks, mean_of, order_statistics


@registry.register("trimmed-mean", "trim")
@dataclass(frozen=True)
class TrimmedMean(Robust):
    """The mean of every coordinate without its ⌊M/2⌋ largest and ⌊M/2⌋ smallest values."""

    coordinate_wise: ClassVar[bool] = True

    cut: Literal["half", "all"] = "half"
    """Cut ⌊M/2⌋ values at each end, or M."""

    def max_malicious(self, rows: int) -> int:
        """Return the largest M that leaves one value in the middle."""
        return rows - 1 if self.cut == "half" else (rows - 1) // 2

    def tolerates(self, rows: int, malicious: int) -> int:
        """Return the number of values that are cut at each end."""
        return malicious // 2 if self.cut == "half" else malicious

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the mean of the middle values of each column."""
        cut = self.tolerates(len(rows), malicious)
        middle = torch.arange(cut, len(rows) - cut)
        mean = rows.new_empty(rows.shape[1])
        for block in blocks(rows):
            mean[block] = mean_of(order_statistics(rows[:, block]), middle)
        return mean
