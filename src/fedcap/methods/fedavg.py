"""FedAvg: one global model, moved each round by the (weighted mean) update of the participants.

Reference: McMahan et al., AISTATS 2017. Its personal reading, the model a client has after training
locally from the global one, is FedAvg-FT (Cheng et al., "Fine-tuning is fine in federated learning").
Any aggregation rule may stand in the mean's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedcap import aggregators
from fedcap.aggregators import Aggregator
from fedcap.methods.base import (
    Dispatch,
    Method,
    Uploads,
    Verdict,
    drop_non_finite,
    norms_by_client,
    registry,
)
from fedcap.training import Layout


@dataclass(frozen=True)
class GlobalState:
    """The server of a single model."""

    model: Tensor
    """D: the global model."""


@registry.register("fedavg", "fedavg-ft")
@dataclass(frozen=True)
class FedAvg(Method[GlobalState]):
    """One global model, the mean of all clients' (or by another rule); personal reading: FedAvg-FT."""

    state_type: ClassVar[type[Any]] = GlobalState

    rule: str = "mean"

    @cached_property
    def _aggregate(self) -> Aggregator:
        return aggregators.make(self.rule)

    def start(self, weights: Tensor, layout: Layout) -> GlobalState:
        """Start from the common weights."""
        return GlobalState(weights)

    def dispatch(self, state: GlobalState, ids: Tensor, requests: Mapping[int, Tensor]) -> Dispatch:
        """Send everybody the global model."""
        return Dispatch(ids, state.model[None], torch.zeros(len(ids), 1, dtype=torch.long))

    def aggregate(
        self, state: GlobalState, dispatch: Dispatch, uploads: Uploads
    ) -> tuple[GlobalState, Verdict]:
        """Move the global model by the aggregate of the finite updates."""
        verdict_norms = norms_by_client(uploads.ids, uploads.updates)
        uploads, refused = drop_non_finite(uploads)
        verdict = Verdict(verdict_norms, refused)
        if not len(uploads):
            return state, verdict
        step = self._aggregate(uploads.updates, uploads.samples, uploads.malicious)
        return GlobalState(state.model + step), verdict
