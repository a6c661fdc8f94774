"""The interval of a mean over a few figures, one per seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev

TAIL = 0.025
"""What an interval leaves out at each end: it is one of 95 %."""


def half_width(values: Sequence[float]) -> float | None:
    """Return half the width of the mean's 95 % interval: t · s / √n, with Student's t of n − 1 degrees.

    One figure has no interval; equal figures have one of width 0.
    """
    if len(values) < 2:
        return None
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, 1 - TAIL))
    return quantile * stdev(values) / math.sqrt(len(values))
