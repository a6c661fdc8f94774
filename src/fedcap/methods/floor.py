"""A floor under the personal model: a client is not to be worse off for taking part.

What a client receives may be poisoned, and its own samples, which nobody else can touch, tell. The pull
towards the received model ŵ is multiplied by its worth, between 0 and 1,

    (log C − L(ŵ)) / (log C − L(v))  ·  ((log C − L(ŵ)) / (log C − L*))⁴,

where L is the mean loss on the client's own training samples, log C that of a guess over C classes, v its
personal model, and L* the least loss of anything it received so far. The first factor asks how much of what
the client knows the others know too. The second asks whether they have become worse: without attack they
hardly ever do, so it falls fast.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedcap.training import LocalClient, Network

FALL = 4
ENOUGH = 512
"""So many of a client's samples tell."""


def worth(client: LocalClient, received: Tensor, personal: Tensor, least: float) -> tuple[float, float]:
    """Return what the received model is worth to a client, and the least loss of any that it received."""
    network = client.network()
    theirs, classes = _loss(client, network, received)
    own, _ = _loss(client, network, personal)
    if not math.isfinite(theirs):
        return 0.0, least
    least = min(least, theirs)
    guess = math.log(classes)
    known = _share(guess - theirs, guess - own) if math.isfinite(own) else 1.0
    return known * _share(guess - theirs, guess - least) ** FALL, least


def _share(part: float, whole: float) -> float:
    """Return part / whole, from 0 to 1; if there is no whole, all of it or nothing."""
    if whole <= 0:
        return 1.0 if part >= whole else 0.0
    return min(1.0, max(0.0, part / whole))


def _loss(client: LocalClient, network: Network, weights: Tensor) -> tuple[float, int]:
    """Return a model's mean loss on the client's first training samples, and the number of classes."""
    logits = network.logits(weights, client.samples.x[:ENOUGH])
    return float(torch.nn.functional.cross_entropy(logits, client.samples.y[:ENOUGH])), logits.shape[1]
