"""Statistics over seeds: intervals of means, tests of paired differences, and corrected p-values.

Runs with the same seed have the same partition, malicious clients and first weights. So two methods are
compared by their difference at each seed. Every function takes plain floats and returns the same bits each
time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import stdev

import numpy as np

LEAST_FOR_INTERVAL = 3
"""With fewer values an interval is so wide that it says nothing: none is given."""
EXACT_SIGNS = 16
"""Up to this number n of differences, the sign-flip test counts all 2ⁿ signs; beyond, it draws 2¹⁶."""


def half_width(values: Sequence[float]) -> float | None:
    """Return half the width of the 95 % interval of the mean: t · s / √n, with Student's t of n − 1 degrees.

    Fewer than three values have no interval. Equal values have an interval of width 0.
    """
    count = len(values)
    if count < LEAST_FOR_INTERVAL:
        return None
    return _quantile(count - 1) * stdev(values) / math.sqrt(count)


@cache
def _quantile(degrees: int) -> float:
    from scipy import stats  # half a second: only where an interval is needed

    return float(stats.t.ppf(0.975, degrees))


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of the paired sign-flip test on the mean difference.

    If two methods do not differ, each seed's difference has either sign with the same probability. The test
    counts how often a mean at least as far from 0 results. For n ≤ 16 it is exact and p ≥ 2/2ⁿ.
    """
    from scipy import stats

    if len(differences) < 2:
        return 1.0
    test = stats.permutation_test(
        (np.asarray(differences, dtype=float),),
        np.mean,
        permutation_type="samples",
        n_resamples=2**EXACT_SIGNS,
        random_state=0,
    )
    return float(test.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple tests: Holm's step-down method.

    The smallest of m is multiplied by m, the next by m − 1, and so on. Each is at least the one before, at
    most 1.
    """
    corrected = [0.0] * len(p_values)
    least = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = least
    return corrected
