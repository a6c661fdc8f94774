"""Mixing that cannot be bent: what a client gains by lying close to another is bounded.

Rows are clients. A contributor's model counts, seen from the reference point, no further out than the median
length, or the receiver's own (`scales`), so that nobody is drawn further out than that; it counts less for
whoever would gain less by it than by half of the others (`gains`, `shortfall`); it makes up a quarter of
nobody else's model (`capped`); and those who sent the same have one vote. Clients who are alike in length and
in what is gained by them are mixed as by Eq. 5.

A floor under the personal model: a client is not to be worse off for taking part.

What a client receives may be poisoned, and its own samples, which nobody else can touch, tell. The pull
towards the received model ŵ is multiplied by its worth, between 0 and 1,

    (log C − L(ŵ)) / (log C − L(v))  ·  ((log C − L(ŵ)) / (log C − L*))⁴,

where L is the mean loss on the client's own training samples, log C that of a guess over C classes, v its
personal model, and L* the least loss of anything it received so far. The first factor asks how much of what
the client knows the others know too. The second asks whether they have become worse: without attack they
hardly ever do, so it falls fast.

Training now and then goes astray: a personal model that comes out of it worse, on these samples, than both v
and ŵ were is not kept, and the client stays with v.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedcap.detection import Look
from fedcap.matrix import NARROW, Rows, column_blocks, cosines, weighted_mean, weighted_median
from fedcap.methods import equations
from fedcap.training import LocalClient

REVISION = 4
"""Raise it if the same options give other models than before: runs then are other runs."""
LARGEST = 0.25
"""The largest share of one contributor in another client's model."""
STRENGTH = 40.0
"""How fast a contributor's share falls as less is gained by it: by this power of e per unit of cosine."""
TIMES = 4.0
"""At most so many times its share by likeness alone a contributor takes over from others."""
SHORTEST = 1e-12
NOTHING = -1e9
"""The logarithm of no vote at all."""


def mixing_weights(
    similarities: Tensor, own: Tensor, gains: Tensor, votes: Tensor, alpha: float, phi: float
) -> Tensor:
    """Return how much each client of the pool contributes to each request, R×N: Eq. 5, guarded.

    The softmax is over alpha · cosine − shortfall + log(vote). `gains` is N×N, or empty if they are not
    known; then, and for newcomers, likeness stands for them. A newcomer was sent the reference and asks with
    the update that it made of it, so likeness is what it gains.

    A softmax gives to others what one contributor loses. No contributor gets more than `TIMES` its share by
    likeness alone, and what is left stays with the client, or for a newcomer with the reference: a client who
    has learnt what there is to learn gains by nobody, and would else be mixed from strangers.
    """
    known = (own >= 0).to(similarities.device)[:, None]
    gained = torch.where(known, gains[own].to(similarities), similarities) if len(gains) else similarities
    alike = alpha * similarities + votes.log().clamp_min(NOTHING).to(similarities)
    most = TIMES * equations.mixing_weights(alike, own, 1.0, phi)
    weights = equations.mixing_weights(alike - shortfall(gained, own), own, 1.0, phi).minimum(most)
    counting = _mine(own, weights) | (votes > 0).to(weights.device)
    return capped(weights * counting, own)


def customised_models(
    weights: Tensor, own: Tensor, models: Tensor, norms: Tensor, reference: Tensor
) -> Tensor:
    """Return the model made for each request, R×D: Eq. 3, the others' models drawn in to the reference."""
    counted = weights * scales(norms, own).to(weights)
    left = 1 - counted.sum(dim=1, keepdim=True)
    mixed = equations.customised_models(counted, models)
    for columns in column_blocks(len(reference), NARROW):
        mixed[:, columns] += left * reference[columns]
    return mixed


def scales(norms: Tensor, own: Tensor) -> Tensor:
    """Return how much of each contributor's calibrated update counts for each receiver, R×N.

    It counts up to the median length, or the receiver's own, whichever is longer: those who are far from the
    reference have friends who are, and nobody else has. One's own update counts as it is. So no mixture is
    longer than that; if it could be, by however little, attackers would drive everybody apart round by round.
    """
    typical = norms.median()
    reach = torch.where(own >= 0, norms[own].maximum(typical), typical)
    return (reach[:, None] / norms.clamp_min(SHORTEST)).clamp_max(1.0)


def gains(look: Look) -> Tensor:
    """Return how much of the way to each contributor's model goes where each receiver went, N×N.

        g_ki = cos(w̃_i − ŵ_k, d_k),    ŵ_k = w̃_k − d_k

    From the model ŵ_k that it was sent, the receiver k went d_k, which is downhill for its own loss. So, to
    first order, g_ki tells by how much its loss falls per unit of the way to w̃_i: what FedFomo's clients
    measure on models that they are sent (Zhang et al., ICLR 2021) the server reads off what it has. It is
    computed from cosines with the calibrated updates r, since

        ‖w̃_i − ŵ_k‖² = ‖r_i − r_k‖² + ‖d_k‖² + 2 d_k·(r_i − r_k).
    """
    norms, lengths = look.norms, look.lengths[:, None]
    along = cosines(Rows(look.folded_updates), Rows(look.folded_calibrated)).cpu().double()
    products = lengths * along * norms
    further = products - products.diagonal()[:, None]  # d_k · (r_i − r_k)
    apart = (norms - norms[:, None]).square() + 2 * norms[:, None] * norms * (1 - look.likeness.double())
    ways = (apart + lengths.square() + 2 * further).clamp_min(0).sqrt()
    return ((further + lengths.square()) / (lengths * ways).clamp_min(SHORTEST)).clamp(-1, 1)


def shortfall(gains: Tensor, own: Tensor) -> Tensor:
    """Return how much less each receiver gains by each contributor than by half of the others, R×N.

    It is in logarithms of a share. A minority of contributors cannot move the median gain out of the range of
    the others'. Whoever is alone in the pool has none, and falls short of nothing.
    """
    others = gains.masked_fill(_mine(own, gains), torch.nan)
    usual = others.nanmedian(dim=1, keepdim=True).values.nan_to_num(-1.0)
    return STRENGTH * (usual - gains).clamp_min(0)


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


FALL = 4
ENOUGH = 512
"""So many of a client's samples tell."""


class Floor:
    """What a client's own samples say of the model it received in a round, and of its personal one before."""

    def __init__(self, client: LocalClient, received: Tensor, personal: Tensor, least: float) -> None:
        self._network, self._personal = client.network(), personal
        self._x, self._y = client.samples.x[:ENOUGH], client.samples.y[:ENOUGH]
        self._theirs, classes = self._loss(received)
        self._own, _ = self._loss(personal)
        self._guess = math.log(classes)
        self.least = min(least, self._theirs) if math.isfinite(self._theirs) else least
        """L*: the least loss of anything received, this round's model included."""

    @property
    def worth(self) -> float:
        """What the received model is worth to the client, from 0 to 1: by this share it is pulled there."""
        if not math.isfinite(self._theirs):
            return 0.0
        learnt = self._guess - self._theirs
        known = _share(learnt, self._guess - self._own) if math.isfinite(self._own) else 1.0
        return known * _share(learnt, self._guess - self.least) ** FALL

    def keep(self, trained: Tensor) -> Tensor:
        """Return the personal model to keep: the one trained, or that of before if training went astray."""
        if not math.isfinite(self._own):
            return trained
        worst = max(self._own, self._theirs) if math.isfinite(self._theirs) else self._own
        return trained if self._loss(trained)[0] <= worst else self._personal  # a loss of NaN is no less

    def _loss(self, weights: Tensor) -> tuple[float, int]:
        """Return a model's mean loss on the client's first training samples, and the number of classes."""
        logits = self._network.logits(weights, self._x)
        return float(torch.nn.functional.cross_entropy(logits, self._y)), logits.shape[1]


def _share(part: float, whole: float) -> float:
    """Return part / whole, from 0 to 1; with nothing to share, all of it if the part is no worse."""
    if whole <= 0:
        return 1.0 if part >= whole else 0.0
    return min(1.0, max(0.0, part / whole))
