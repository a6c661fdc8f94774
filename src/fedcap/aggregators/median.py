"""The coordinate-wise median; of an even number of values, the mean of the middle two.

Reference: Yin et al., "Byzantine-robust distributed learning", ICML 2018. It tolerates any M with 2M < N and
does not use M: every coordinate lies between values of honest clients. Different clients are in the middle of
different coordinates, so where clients' data differ the result resembles no client's update. ByzFL uses the
mean of the middle two as well; `torch.median` returns the lower of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcap.aggregators.base import Robust, minority, registry
from fedcap.matrix import blocks, order_statistics


@registry.register("median")
@dataclass(frozen=True)
class Median(Robust):
    """The median of every coordinate."""

    coordinate_wise: ClassVar[bool] = True

    def tolerates(self, rows: int, malicious: int) -> int:
        """Return the largest M with 2M < N."""
        return minority(rows)

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the median of each column."""
        count = len(rows)
        median = rows.new_empty(rows.shape[1])
        for block in blocks(rows):
            ordered = order_statistics(rows[:, block])
            median[block] = ordered[(count - 1) // 2] / 2 + ordered[count // 2] / 2  # a sum may overflow
        return median
