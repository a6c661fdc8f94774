"""Statistics of a few figures, one per seed: intervals of a mean, paired differences and their p-values.

Methods that ran with the same seed had the same partition, attackers and first weights, so they are compared
by their differences, seed by seed. Every function takes plain floats and gives the same bits each time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from fedcap.report.tables import TAIL

EXACT_BOOTSTRAP = 10
"""Up to so many figures every resample is counted; of more, some are drawn."""
EXACT_SIGNS = 16
"""Up to so many differences every choice of signs is counted; of more, some are drawn."""
DRAWS = 20_000
_SEED = 2024
"""What resamples and signs are drawn with; it has nothing to do with the seeds of runs."""


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % percentile interval of the mean of resamples; one figure has none.

    2.5 % of the resamples are at its lower end or below, and 2.5 % at its upper end or above. Up to ten
    figures all nⁿ resamples are counted; of more, 20,000 are drawn.
    """
    count = len(values)
    if count < 2:
        return None
    means, times = _all_resamples(values) if count <= EXACT_BOOTSTRAP else _drawn_resamples(values)
    order = np.argsort(means, kind="stable")
    means, times = means[order], times[order]
    least = TAIL * times.sum()
    low = means[np.searchsorted(np.cumsum(times), least)]
    high = means[::-1][np.searchsorted(np.cumsum(times[::-1]), least)]
    return float(low), float(high)


def separation(lower: Sequence[float], higher: Sequence[float]) -> float | None:
    """Return how often a number of the second kind is above one of the first: the area under the ROC curve.

    Equal ones count half. Without numbers of both kinds there is none.
    """
    if not lower or not higher:
        return None
    gaps = np.subtract.outer(np.asarray(higher), np.asarray(lower))
    return float((gaps > 0).mean() + (gaps == 0).mean() / 2)


def caught(lower: Sequence[float], higher: Sequence[float], share: float) -> float | None:
    """Return which share of the second kind is above a limit that at most `share` of the first are above.

    Over all shares from 0 to 1 this is the ROC curve.
    """
    if not lower or not higher:
        return None
    ranked = np.sort(np.asarray(lower, dtype=float))[::-1]
    allowed = math.floor(share * len(ranked) + 1e-9)
    limit = ranked[allowed] if allowed < len(ranked) else -math.inf
    return float((np.asarray(higher) > limit).mean())


def _all_resamples(values: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of every resample, without regard to order, and in how many orders it comes."""
    count = len(values)
    chosen = np.array(list(itertools.combinations_with_replacement(range(count), count)))
    factorials = np.array([math.factorial(number) for number in range(count + 1)])
    repeats = np.stack([(chosen == index).sum(axis=1) for index in range(count)], axis=1)
    return _means(values, chosen), factorials[-1] // factorials[repeats].prod(axis=1)


def _drawn_resamples(values: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.random.default_rng(_SEED).integers(len(values), size=(DRAWS, len(values)))
    return _means(values, chosen), np.ones(DRAWS, dtype=int)


def _means(values: Sequence[float], chosen: np.ndarray) -> np.ndarray:
    """Return means of the chosen values, taken as distances from the first, so that equal ones stay equal."""
    first = values[0]
    means: np.ndarray = first + (np.asarray(values, dtype=float) - first)[chosen].mean(axis=1)
    return means


def sign_flip_p(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of the sign-flip test: how often a mean as far from 0 comes by chance.

    If two methods do not differ, the sign of each seed's difference is a coin. Up to 16 differences all 2ⁿ
    choices of signs are counted, so no p is under `smallest_p(n)`; of more, 20,000 are drawn.
    """
    count = len(differences)
    if count <= EXACT_SIGNS:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=count)))
    else:
        drawn = np.random.default_rng(_SEED).choice((1.0, -1.0), size=(DRAWS, count))
        signs = np.concatenate([np.ones((1, count)), drawn])
    sums = np.abs(signs @ np.asarray(differences, dtype=float))
    rounding = 1e-9 * np.abs(differences).sum()
    return float((sums >= sums[0] - rounding).mean())


def smallest_p(count: int) -> float:
    """Return the smallest p-value that `sign_flip_p` can give for so many differences: 2 of 2ⁿ."""
    return min(1.0, 2 / 2**count) if count <= EXACT_SIGNS else 1 / (DRAWS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for being several: Holm's step-down method.

    The smallest of m is multiplied by m, the next by m − 1, and so on; none falls below one before it, or
    passes 1.
    """
    adjusted = [0.0] * len(p_values)
    before = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        before = max(before, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = before
    return adjusted
