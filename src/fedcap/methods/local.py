"""Local: every client trains alone and nothing is sent. The baseline that federated methods must beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedcap.methods.base import Dispatch, Judged, Method, registry
from fedcap.state import Tensors
from fedcap.training import Layout, LocalClient, Trained


@dataclass(frozen=True)
class LocalState:
    """A server that knows only how long a model is."""

    nothing: Tensor
    """0×D: no models to send."""


@registry.register("local")
@dataclass(frozen=True)
class Local(Method[LocalState]):
    """Every client trains a model of its own, alone; nothing is shared."""

    state_type: ClassVar[type[Any]] = LocalState
    shares: ClassVar[bool] = False

    def start(self, weights: Tensor, layout: Layout) -> LocalState:
        """Return a state with nothing in it."""
        return LocalState(weights.new_empty(0, layout.size))

    def dispatch(self, state: LocalState, ids: Tensor, requests: Mapping[int, Tensor]) -> Dispatch:
        """Send nothing to anybody."""
        return Dispatch(ids, state.nothing, torch.empty(len(ids), 0, dtype=torch.long))

    def train(self, client: LocalClient, received: Tensor, kept: Tensors) -> Trained:
        """Train on from the client's own model."""
        learner = client.learner(kept["personal"])
        client.fit(learner)
        return Trained(learner.weights - kept["personal"], {"personal": learner.weights})

    def absorb(self, state: LocalState, judged: Judged) -> tuple[LocalState, Sequence[str]]:
        """Change nothing."""
        return state, ()
