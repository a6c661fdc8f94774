"""What FedAvg, Ditto, FedRoD and FLTrust share: a server with one model, which it sends to everybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from fedcap.detection import Look
from fedcap.methods.base import Method, Uploads
from fedcap.methods.dispatch import Dispatch
from fedcap.training import Layout


@dataclass(frozen=True)
class GlobalState:
    """The server of a single model."""

    model: Tensor
    """D: the global model."""

    def moved(self, step: Tensor | None) -> GlobalState:
        """Return the state after a step, or the same if there is none to take."""
        return self if step is None else GlobalState(self.model + step)


@dataclass(frozen=True)
class GlobalModel(Method[GlobalState]):
    """A method whose server has one model for all."""

    state_type: ClassVar[type[Any]] = GlobalState

    def start(self, weights: Tensor, layout: Layout) -> GlobalState:
        """Start from the common weights."""
        return GlobalState(weights)

    def dispatch(self, state: GlobalState, ids: Tensor, requests: Mapping[int, Tensor]) -> Dispatch:
        """Send everybody the global model."""
        return Dispatch.to_all(ids, state.model)

    def look(self, state: GlobalState, dispatch: Dispatch, uploads: Uploads) -> Look:
        """See the updates as they were sent: all of them start at the global model already."""
        seen = super().look(state, dispatch, uploads)
        return replace(seen, reference=state.model)

    def global_model(self, state: GlobalState) -> Tensor:
        """Return the one model."""
        return state.model
