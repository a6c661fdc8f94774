"""What FedCAP's preset `hardened` adds: bounds on mixing, reference and personal model.

An attacker that knows the method can send a row similar to an honest client's, be mixed into that client's
model, and push it over the limit. So the preset uses detectors without a fixed scale (`robust-norm`,
`collusion`), the policy `evidence`, and these bounds:

* `scales`: measured from the reference, a contributor's model counts at most as far out as the median norm,
  or as the receiver's own. So mixing moves no client further out than that.
* `penalty`: a contributor from which the receiver would gain less than from half of the others counts less.
* `limit_shares`: a contributor makes up at most a quarter of another client's model. Clients that sent the
  same update share one vote.
* `reference`: the common point is a mean that a minority cannot move far.
* `Floor`: a client is pulled less towards a received model that does badly on its own samples.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedcap.detection import RoundView
from fedcap.matrix import NARROW, SHORTEST, Rows, column_blocks, cosines, weighted_mean, weighted_median
from fedcap.methods import equations
from fedcap.training import LocalClient

REVISION = 4
"""Increase it when the same options give other models than before: runs are then other runs."""
LARGEST = 0.25
"""The largest share of one contributor in another client's model."""
STRENGTH = 40.0
"""How fast a contributor's share falls with its gain: by this power of e per unit of cosine."""
TIMES = 4.0
"""A contributor gets at most this many times its share by similarity alone."""
NO_LOSS = torch.finfo(torch.float32).max
"""Stands for the least loss of what a client received, while it has received nothing."""
NOTHING = -1e9
"""The logarithm of a vote of zero."""


def mixing_weights(
    similarities: Tensor, own: Tensor, gains: Tensor, votes: Tensor, alpha: float, phi: float
) -> Tensor:
    """Return how much each client of the pool contributes to each request, R×N: Eq. 5, bounded.

    The softmax is over alpha · cosine − penalty + log(vote). `gains` is N×N, or empty if they are not known;
    then, and for newcomers, the cosines replace them. A newcomer received the reference and asks with the
    update that it trained from it, so the cosine is what it gains.

    A softmax gives to others what one contributor loses. No contributor gets more than `TIMES` its share by
    similarity alone, and the rest stays with the client, or for a newcomer with the reference. Otherwise a
    client that gains from no other client would be mixed from clients unlike it.
    """
    known = (own >= 0).to(similarities.device)[:, None]
    gained = torch.where(known, gains[own].to(similarities), similarities) if len(gains) else similarities
    logits = alpha * similarities + votes.log().clamp_min(NOTHING).to(similarities)
    most = TIMES * equations.mixing_weights(logits, own, 1.0, phi)
    weights = equations.mixing_weights(logits - penalty(gained, own), own, 1.0, phi).minimum(most)
    counting = _mine(own, weights) | (votes > 0).to(weights.device)
    return limit_shares(weights * counting, own)


def mix_models(
    weights: Tensor, own: Tensor, models: Tensor | Rows, norms: Tensor, reference: Tensor
) -> Tensor:
    """Return the model made for each request, R×D: Eq. 3, with the others' models limited by `scales`."""
    counted = weights * scales(norms, own).to(weights)
    left = 1 - counted.sum(dim=1, keepdim=True)
    mixed = equations.mix_models(counted, models)
    for columns in column_blocks(len(reference), NARROW):
        mixed[:, columns] += left * reference[columns]
    return mixed


def scales(norms: Tensor, own: Tensor) -> Tensor:
    """Return how much of each contributor's calibrated update counts for each receiver, R×N.

    It counts up to the median norm or the receiver's own norm, whichever is larger, because clients far from
    the reference are mixed from others that are far, too. The receiver's own update counts fully. So no
    mixture has a larger norm; otherwise attackers could move all clients further out in every round.
    """
    typical = norms.median()
    reach = torch.where(own >= 0, norms[own].maximum(typical), typical)
    return (reach[:, None] / norms.clamp_min(SHORTEST)).clamp_max(1.0)


def gains(view: RoundView) -> Tensor:
    """Return how much of the way to each contributor's model goes where each receiver went, N×N.

        g_ki = cos(w̃_i − ŵ_k, d_k),    ŵ_k = w̃_k − d_k

    From the model ŵ_k that it received, client k moved by d_k, which reduces its own loss. So, to first
    order, g_ki is how much its loss falls per unit of the way to w̃_i. FedFomo's clients measure this on the
    models that they receive (Zhang et al., ICLR 2021). Here the server computes it from what it has; it needs
    only cosines with the calibrated updates r, because

        ‖w̃_i − ŵ_k‖² = ‖r_i − r_k‖² + ‖d_k‖² + 2 d_k·(r_i − r_k).
    """
    norms, lengths = view.norms, view.update_norms[:, None]
    along = cosines(Rows(view.update_sketch), Rows(view.calibrated_sketch)).cpu().double()
    products = lengths * along * norms
    further = products - products.diagonal()[:, None]  # d_k · (r_i − r_k)
    apart = (norms - norms[:, None]).square() + 2 * norms[:, None] * norms * (1 - view.cosines.double())
    ways = (apart + lengths.square() + 2 * further).clamp_min(0).sqrt()
    return ((further + lengths.square()) / (lengths * ways).clamp_min(SHORTEST)).clamp(-1, 1)


def penalty(gains: Tensor, own: Tensor) -> Tensor:
    """Return how much less each receiver gains by each contributor than by half of the others, R×N.

    It is in logarithms of a share. A minority of contributors cannot move the median gain out of the range of
    the others'. The only client of a pool has no penalty.
    """
    others = gains.masked_fill(_mine(own, gains), torch.nan)
    usual = others.nanmedian(dim=1, keepdim=True).values.nan_to_num(-1.0)
    return STRENGTH * (usual - gains).clamp_min(0)


def limit_shares(weights: Tensor, own: Tensor, largest: float = LARGEST) -> Tensor:
    """Return the weights, R×N, with no contributor but a client itself over `largest`.

    What is cut off goes to the client itself. A newcomer has no row in the pool: its weights sum to less than
    1, and the rest is the reference's.
    """
    mine = _mine(own, weights)
    cut = torch.where(mine, weights, weights.clamp_max(largest))
    return cut + mine * (1 - cut.sum(dim=1, keepdim=True))


def _mine(own: Tensor, weights: Tensor) -> Tensor:
    """Return which weight, of R×N, is each receiver's for itself."""
    return own.to(weights.device)[:, None] == torch.arange(weights.shape[1], device=weights.device)


def reference(models: Tensor | Rows, samples: Tensor, norms: Tensor, votes: Tensor, last: Tensor) -> Tensor:
    """Return the mean of the models, D, each at most as far from the last reference as the median norm.

    This is one step of centred clipping (Karimireddy et al., ICML 2021) from the last reference. No client
    counts for more samples than the median client has, and clients without a vote do not count.
    """
    typical = weighted_median(norms, votes) if bool(votes.any()) else norms.new_zeros(())
    near = torch.where(norms <= typical, 1.0, typical / norms.clamp_min(SHORTEST))
    counted = samples.double().clamp_max(float(samples.double().median())) * votes
    shares = counted / counted.sum().clamp_min(SHORTEST)
    weights = shares * near
    total = float(weights.sum())
    return last if total == 0 else weighted_mean(models, weights) * total + (1 - total) * last


FALL = 4
ENOUGH = 512
"""The largest number of samples on which losses are computed."""


class Floor:
    """Compares the model received with the personal model, on the client's own training samples.

    No other client can touch these samples. The pull towards the received model ŵ is multiplied by

        worth = (log C − L(ŵ)) / (log C − L(v))  ·  ((log C − L(ŵ)) / (log C − L*))⁴,    between 0 and 1,

    where L is the mean loss, log C the loss of a guess over C classes, v the personal model, and L* the least
    loss of any model received so far. The first factor is the share of what the client knows that ŵ knows,
    too. The second compares ŵ with earlier models: without an attack they hardly ever become worse, so it
    falls fast. Training sometimes diverges: a trained personal model that is worse on these samples than both
    v and ŵ is not kept, and the client stays with v.
    """

    def __init__(self, client: LocalClient, received: Tensor, personal: Tensor, least: float) -> None:
        self._network, self._personal, self._mean_loss = client.network(), personal, client.loss
        self._x, self._y = client.samples.x[:ENOUGH], client.samples.y[:ENOUGH]
        self._theirs, classes = self._loss(received)
        self._own, _ = self._loss(personal)
        self._guess = math.log(classes)
        self.least = min(least, self._theirs) if math.isfinite(self._theirs) else least
        """L*: the least loss of any model received, this round's included."""

    @property
    def worth(self) -> float:
        """The share of the pull towards the received model, from 0 to 1."""
        if not math.isfinite(self._theirs):
            return 0.0
        learnt = self._guess - self._theirs
        known = _share(learnt, self._guess - self._own) if math.isfinite(self._own) else 1.0
        return known * _share(learnt, self._guess - self.least) ** FALL

    def keep(self, trained: Tensor) -> Tensor:
        """Return the personal model to keep: the one trained, or the previous one if training diverged."""
        if not math.isfinite(self._own):
            return trained
        worst = max(self._own, self._theirs) if math.isfinite(self._theirs) else self._own
        return trained if self._loss(trained)[0] <= worst else self._personal  # also if the loss is NaN

    def _loss(self, weights: Tensor) -> tuple[float, int]:
        """Return a model's mean loss on the client's first training samples, and the number of classes."""
        logits = self._network.logits(weights, self._x)
        return float(self._mean_loss(logits, self._y)), logits.shape[1]


def _share(part: float, whole: float) -> float:
    """Return part / whole, from 0 to 1; with nothing to share, all of it if the part is no worse."""
    if whole <= 0:
        return 1.0 if part >= whole else 0.0
    return min(1.0, max(0.0, part / whole))
