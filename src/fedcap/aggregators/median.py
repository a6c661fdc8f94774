"""The coordinate-wise median; of an even number of values, the mean of the two in the middle.

Reference: Yin et al., "Byzantine-robust distributed learning", ICML 2018. Withstands any M with 2M < N,
whatever M it is told: every coordinate then lies between honest clients' values. Which clients are in the
middle changes with each coordinate, so where clients' data differ the result is nobody's update.
`torch.median` differs for an even N: it gives the lower of the two values. ByzFL gives their mean, as here.
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

    def withstands(self, rows: int, malicious: int) -> int:
        """Return the largest minority."""
        return minority(rows)

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the median of each column."""
        count = len(rows)
        median = rows.new_empty(rows.shape[1])
        for block in blocks(rows):
            ordered = order_statistics(rows[:, block])
            median[block] = ordered[(count - 1) // 2] / 2 + ordered[count // 2] / 2  # a sum may overflow
        return median
