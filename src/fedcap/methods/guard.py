"""Mixing that cannot be bent: what a client gains by lying close to another is bounded.

Rows are clients. A contributor's model counts, seen from the reference point, no further out than the median
length, or the receiver's own (`scales`), so that nobody is drawn further out than that; it counts little for
a receiver whose own update it opposes more than others do (`opposition`); it makes up a quarter of nobody
else's model (`capped`); and those who sent the same have one vote. All of it leaves the mixture nearly as it
is where nobody stands out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedcap.detection.spread import SIGMA, weighted_median
from fedcap.matrices import weighted_mean
from fedcap.methods import equations

REVISION = 2
"""Raise it if the same options give other models than before: runs then are other runs."""
LARGEST = 0.25
"""The largest share of one contributor in another client's model."""
STRENGTH = 40.0
"""How fast a contributor's share falls with opposition: by this power of e per unit of cosine."""
MARGIN = 0.05
PATIENCE = 2.0
SHORTEST = 1e-12
NOTHING = -1e9
"""The logarithm of no vote at all."""


def mixing_weights(
    similarities: Tensor, own: Tensor, agreement: Tensor, votes: Tensor, alpha: float, phi: float
) -> Tensor:
    """Return how much each client of the pool contributes to each request, R×N: Eq. 5, guarded.

    The softmax is over alpha · cosine − opposition + log(vote).
    """
    against = opposition(agreement)[own].to(similarities)
    against[own < 0] = 0.0
    logits = alpha * similarities - against + votes.log().clamp_min(NOTHING).to(similarities)
    weights = equations.mixing_weights(logits, own, 1.0, phi)
    counting = _mine(own, weights) | (votes > 0).to(weights.device)
    return capped(weights * counting, own)


def customised_models(
    weights: Tensor, own: Tensor, models: Tensor, norms: Tensor, reference: Tensor
) -> Tensor:
    """Return the model made for each request, R×D: Eq. 3, the others' models drawn in to the reference."""
    counted = weights * scales(norms, own).to(weights)
    mixed = equations.customised_models(counted, models)
    return mixed.add_((1 - counted.sum(dim=1, keepdim=True)) * reference)


def scales(norms: Tensor, own: Tensor) -> Tensor:
    """Return how much of each contributor's calibrated update counts for each receiver, R×N.

    It counts up to the median length, or the receiver's own, whichever is longer: those who are far from the
    reference have friends who are, and nobody else has. One's own update counts as it is. So no mixture is
    longer than that; if it could be, by however little, attackers would drive everybody apart round by round.
    """
    typical = norms.median()
    reach = torch.where(own >= 0, norms[own].maximum(typical), typical)
    return (reach[:, None] / norms.clamp_min(SHORTEST)).clamp_max(1.0)


def opposition(agreement: Tensor) -> Tensor:
    """Return how much each contributor opposes each receiver beyond what is usual for it, N×N, in logarithms.

    Usual is the median cosine between the receiver's update and all others', less one robust deviation.
    Those who go against nearly everybody count less still, except for those who go their way.
    """
    count = len(agreement)
    if count < 3:
        return torch.zeros_like(agreement)
    others = agreement[~torch.eye(count, dtype=torch.bool)].view(count, count - 1)
    middle = others.median(dim=1, keepdim=True).values
    spread = SIGMA * (others - middle).abs().median(dim=1, keepdim=True).values
    pairwise = STRENGTH * (middle - spread.clamp_min(MARGIN) - agreement).clamp_min(0)
    support = middle[:, 0]
    usual = support.median()
    width = (SIGMA * (support - usual).abs().median()).clamp_min(MARGIN)
    outcast = ((usual - support) / width - PATIENCE).clamp_min(0) * (support < 0)
    return pairwise + outcast * (agreement < middle)


def capped(weights: Tensor, own: Tensor, largest: float = LARGEST) -> Tensor:
    """Return the weights, R×N, with no contributor but a client itself over `largest`.

    What is cut off goes to the client itself. A newcomer has no row of its own: its weights sum to less than
    1, and the rest is the reference's.
    """
    mine = _mine(own, weights)
    cut = torch.where(mine, weights, weights.clamp_max(largest))
    return cut + mine * (1 - cut.sum(dim=1, keepdim=True))


def _mine(own: Tensor, weights: Tensor) -> Tensor:
    """Return which weight, of R×N, is each receiver's for itself."""
    return own.to(weights.device)[:, None] == torch.arange(weights.shape[1], device=weights.device)


def robust_reference(models: Tensor, samples: Tensor, norms: Tensor, votes: Tensor, last: Tensor) -> Tensor:
    """Return the mean of the models, D, none of them further from the last reference than the median length.

    This is one step of centred clipping (Karimireddy et al., ICML 2021) from the last reference. Nobody
    counts for more samples than the median client has, and those who have no vote do not count.
    """
    typical = weighted_median(norms, votes) if bool(votes.any()) else norms.new_zeros(())
    near = torch.where(norms <= typical, 1.0, typical / norms.clamp_min(SHORTEST))
    counted = samples.double().clamp_max(float(samples.double().median())) * votes
    shares = counted / counted.sum().clamp_min(SHORTEST)
    kept = shares * near
    total = float(kept.sum())
    return last if total == 0 else weighted_mean(models, kept) * total + (1 - total) * last
