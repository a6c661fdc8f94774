"""The pair of models that clients of FedCAP and Ditto train: the shared one, and their own beside it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedcap.state import Tensors
from fedcap.training import LocalClient, Network, Trained


def train_pair(
    client: LocalClient, received: Tensor, kept: Tensors, lambda_: float, let_go: bool = False
) -> Trained:
    """Train the personal model, pulled towards the one received, and the shared one, on each mini-batch.

    The personal model v follows L(v) + λ/2 ‖v − ŵ‖², where ŵ is the model as received; it never leaves
    the client. The shared one starts at ŵ and follows L; its change is the update. With `let_go`, λ falls
    as far as ŵ is worse than the personal model on the client's own samples (`worth`).
    """
    pull = lambda_ * worth(client, received, kept["personal"]) if let_go else lambda_
    own = client.learner(kept["personal"], anchor=received, pull=pull)
    shared = client.learner(received)
    client.fit(own, shared)
    return Trained(shared.weights - received, {"personal": own.weights})


def worth(client: LocalClient, received: Tensor, personal: Tensor) -> float:
    """Return how much of what the personal model has learnt the received one knows too, from 0 to 1.

        (log C − L(ŵ)) / (log C − L(v)),

    where L is the mean loss on the client's own training samples and log C that of a guess over C classes.
    """
    network = client.network()
    theirs, classes = _loss(client, network, received)
    own, _ = _loss(client, network, personal)
    guess = math.log(classes)
    if not own < guess:  # nothing learnt yet, or no number
        return 1.0 if theirs <= own or not math.isfinite(own) else 0.0
    return min(1.0, max(0.0, (guess - theirs) / (guess - own))) if math.isfinite(theirs) else 0.0


def _loss(client: LocalClient, network: Network, weights: Tensor) -> tuple[float, int]:
    """Return a model's mean loss on the client's training samples, and the number of classes."""
    logits = network.logits(weights, client.samples.x)
    return float(torch.nn.functional.cross_entropy(logits, client.samples.y)), logits.shape[1]
