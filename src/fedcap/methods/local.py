"""Local: every client trains alone and nothing is sent. Federated methods must be better than this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcap.detection import RoundView, Verdict
from fedcap.methods.base import Method, Sent, registry
from fedcap.state import Tensors
from fedcap.training import ClientUpdate, Layout, LocalClient


@dataclass(frozen=True)
class LocalState:
    """A server that knows only the size of a model."""

    nothing: Tensor
    """0×D: no models to send."""


@registry.register("local")
@dataclass(frozen=True)
class Local(Method[LocalState]):
    """Every client trains its own model, alone; nothing is shared."""

    shares: ClassVar[bool] = False

    def init(self, weights: Tensor, layout: Layout) -> LocalState:
        """Return a state without models."""
        return LocalState(weights.new_empty(0, layout.size))

    def send(self, state: LocalState, ids: Tensor, requests: Mapping[int, Tensor] | None = None) -> Sent:
        """Send no models."""
        return Sent(ids, state.nothing, torch.empty(len(ids), 0, dtype=torch.long))

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        """Continue to train the client's own model."""
        learner = client.learner(own["personal"])
        client.fit(learner)
        return ClientUpdate(learner.weights - own["personal"], {"personal": learner.weights})

    def update(self, state: LocalState, sent: Sent, view: RoundView, verdict: Verdict) -> LocalState:
        """Change nothing."""
        return state
