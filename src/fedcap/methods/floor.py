"""A floor under the personal model: a client is not to be worse off for taking part.

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

from fedcap.training import LocalClient

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
