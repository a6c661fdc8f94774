"""How far a number lies from the others', in units of their own spread, and what that says against a client.

The median and the median absolute deviation (MAD) are not moved by a minority, however far out it lies.
Clients who sent the same have one vote between them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

SIGMA = 1.4826
"""The MAD of normal numbers, times this, is their standard deviation."""
THETA = 0.8


def deviations(values: Tensor, votes: Tensor, floor: float) -> Tensor:
    """Return (x − median) / max(σ, floor), N, with σ = 1.4826 · MAD, both over votes."""
    middle, spread = middle_and_spread(values, votes, floor)
    return (values - middle) / spread


def middle_and_spread(values: Tensor, votes: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Return the median, and max(1.4826 · MAD, floor), both over votes."""
    middle = weighted_median(values, votes)
    return middle, (SIGMA * weighted_median((values - middle).abs(), votes)).clamp_min(floor)


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
