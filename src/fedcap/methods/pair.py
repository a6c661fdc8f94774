"""The pair of models that clients of FedCAP and Ditto train: the shared one, and their own beside it."""

from __future__ import annotations

from torch import Tensor

from fedcap.state import Tensors
from fedcap.training import LocalClient, Trained


def train_pair(client: LocalClient, received: Tensor, kept: Tensors, pull: float) -> Trained:
    """Train the personal model, pulled towards the one received, and the shared one, on each mini-batch.

    The personal model v follows L(v) + λ/2 ‖v − ŵ‖², where ŵ is the model as received and λ the pull; it
    never leaves the client. The shared one starts at ŵ and follows L; its change is the update.
    """
    own = client.learner(kept["personal"], anchor=received, pull=pull)
    shared = client.learner(received)
    client.fit(own, shared)
    return Trained(shared.weights - received, {**kept, "personal": own.weights})
