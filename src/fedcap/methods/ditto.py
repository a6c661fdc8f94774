"""Ditto: FedAvg, and on each client a personal model that is pulled towards the global one.

    min_v L_k(v) + λ/2 ‖v − w‖²    with w the global model as received

Reference: Li et al., "Ditto: Fair and robust federated learning through personalization", ICML 2021. The
server may use any rule. Personal models are never sent, so an attack reaches them only through w, and more so
the larger λ is. Malicious clients send attacked updates of the shared model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedcap.methods.base import registry
from fedcap.methods.fedavg import FedAvg
from fedcap.state import Tensors
from fedcap.training import ClientUpdate, LocalClient


def train_pair(client: LocalClient, received: Tensor, own: Tensors, pull: float) -> ClientUpdate:
    """Train the personal model, pulled towards the one received, and the shared one, on each mini-batch.

    The personal model v follows L(v) + λ/2 ‖v − ŵ‖², where ŵ is the model as received and λ the pull; it
    never leaves the client. The shared one starts at ŵ and follows L; its change is the update. FedCAP trains
    the same pair.
    """
    personal = client.learner(own["personal"], anchor=received, pull=pull)
    shared = client.learner(received)
    client.fit(personal, shared)
    return ClientUpdate(shared.weights - received, {**own, "personal": personal.weights})


@registry.register("ditto")
@dataclass(frozen=True)
class Ditto(FedAvg):
    """A global model by any rule, and a personal model on each client that is pulled towards it."""

    lambda_: Annotated[float, Field(ge=0, le=1e6)] = 0.1
    """How strongly the personal model is pulled towards the global one."""

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        """Train the personal and the shared model on the same mini-batches."""
        return train_pair(client, received[0], own, self.lambda_)
