"""FLTrust: the server trains on a few clean samples, and trusts updates that point in the same direction.

    trust_k = max(0, cos(d_k, d_0)),    step = Σ_k trust_k · (‖d_0‖ / ‖d_k‖) d_k / Σ_k trust_k

Reference: Cao et al., "FLTrust: Byzantine-robust federated learning via trust bootstrapping", NDSS 2021. d_0
is the update of the root set: 100 samples that no client has, spread over the classes as evenly as possible.
The server trains d_0 from the global model as clients do. FLTrust tolerates any number of bad rows, as long
as the root set is like the clients' data and no bad row points in the direction of d_0: such a row is
trusted. Malicious clients send attacked updates; the root set is the server's, and is not attacked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcap.detection import RoundView, Verdict
from fedcap.errors import InputError
from fedcap.matrix import blocks, distances_to, weighted_sum
from fedcap.methods.base import Sent, registry
from fedcap.methods.fedavg import GlobalModel, GlobalState


def trusted_step(updates: Tensor, root: Tensor) -> Tensor:
    """Return the mean of the updates, weighted by trust, each scaled to the root update's length, D.

    If no update is trusted, return zeros.
    """
    lengths, root_length = distances_to(updates), distances_to(root[None])[0]
    along = torch.zeros_like(lengths)
    for block in blocks(updates):
        along += updates[:, block].double() @ root[block].double()
    trust = (along / (lengths * root_length)).nan_to_num(0).clamp_min(0)
    weights = (trust / trust.sum() * root_length / lengths).nan_to_num(0, 0, 0)
    return weighted_sum(weights, updates)


@registry.register("fltrust")
@dataclass(frozen=True)
class FLTrust(GlobalModel):
    """One global model; an update counts as far as it agrees with one trained on the server's clean data."""

    root_samples: ClassVar[int] = 100

    def send(self, state: GlobalState, ids: Tensor, requests: Mapping[int, Tensor] | None = None) -> Sent:
        """Send all clients the global model, from which the server trains its root update, too."""
        return Sent.to_all(ids, state.model, start=state.model)

    def update(self, state: GlobalState, sent: Sent, view: RoundView, verdict: Verdict) -> GlobalState:
        """Move the global model by the mean of the updates, weighted by trust."""
        batch = view.counted(verdict)
        if batch.root is None:
            raise InputError("fltrust needs a root set: data that no client has", code="missing-root")
        return state.moved(trusted_step(batch.updates, batch.root) if len(batch) else None)
