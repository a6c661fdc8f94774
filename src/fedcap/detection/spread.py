"""How far a number lies from the others', in units of their own spread, and what that says against a client.

A minority, however far out it lies, cannot move the median and the median absolute deviation (MAD) beyond
what they could be among the others. Nor can it move the shortest interval that holds a majority, which serves
better where all liars lie on one side: with four liars of ten there, the median is near the edge of the
others, and the MAD nearly their whole range. Where votes are given, clients who sent the same have one
between them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

SIGMA = 1.4826
"""The deviation of normal numbers is so many times their MAD, or half the width of their shortest half."""
FEW = 5.0
"""The shortest majority of few numbers is shorter than that of many; this makes up for it."""
THETA = 0.8


def deviations(values: Tensor, votes: Tensor, floor: float) -> Tensor:
    """Return (x − median) / max(σ, floor), N, with σ = 1.4826 · MAD, both over votes."""
    middle = weighted_median(values, votes)
    spread = SIGMA * weighted_median((values - middle).abs(), votes)
    return (values - middle) / spread.clamp_min(floor)


def shortest_majority(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the middle of the shortest interval that holds a majority of the values, and their spread.

        σ = 1.4826 · (1 + 5 / (n − 1)) · half the width

    This is the least median of squares (Rousseeuw, 1984) with its factor for few values. Of intervals that
    are equally short the lowest counts.
    """
    ascending, majority = values.sort().values, len(values) // 2 + 1
    low, high = ascending[: len(values) - majority + 1], ascending[majority - 1 :]
    at = int((high - low).argmin())
    few = 1 + FEW / max(len(values) - 1, 1)
    return (low[at] + high[at]) / 2, SIGMA * few * (high[at] - low[at]) / 2


def weighted_median(values: Tensor, weights: Tensor) -> Tensor:
    """Return the smallest value at which half of the weight is reached; with halves even, the mean of two."""
    order = torch.argsort(values)
    reached = torch.cumsum(weights[order], dim=0)
    half = reached[-1] / 2
    at = int(torch.searchsorted(reached, half * (1 - 1e-12)))
    low = values[order[at]]
    even = math.isclose(float(reached[at]), float(half), rel_tol=1e-9) and at + 1 < len(values)
    return (low + values[order[at + 1]]) / 2 if even else low


def evidence(deviation: Tensor, usual: float) -> Tensor:
    """Return the logarithm of the evidence against a client, N, by how far out it is.

        log e = max(θ · (z − usual), −1),    θ = 0.8

    Honest clients differ from each other in every round alike, so deviations below the usual one speak for a
    client, though no single round speaks loudly for it. If nine rounds of ten are below usual − 1/θ, and the
    others no further beyond usual than an exponential number would be, E[e] < 1: the product of e over
    rounds is a fair game at best, and by Ville's inequality ever reaches 1/δ with a chance of at most δ.
    """
    return (THETA * (deviation - usual)).clamp_min(-1.0)
