"""FLTrust: the server trains on a few clean samples of its own and trusts updates that point its way.

    trust_k = max(0, cos(d_k, d_0)),    step = Σ_k trust_k · (‖d_0‖ / ‖d_k‖) d_k / Σ_k trust_k

Reference: Cao et al., "FLTrust: Byzantine-robust federated learning via trust bootstrapping", NDSS 2021.
d_0 is the update of the root set: 100 samples that no client has, spread over the classes as evenly as
possible. The server trains d_0 from the global model as clients do. Withstands any number of bad rows, as
long as the root set is like the clients' data and no bad row points the same way as d_0: such a row is
trusted. Malicious clients send attacked updates; the root set is the server's, and is not attacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcap.errors import InputError
from fedcap.matrix import blocks, distances_to, weighted_sum
from fedcap.methods.base import Judged, registry
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
    """One global model; an update counts as far as it points the way of one from the server's clean data."""

    root_samples: ClassVar[int] = 100

    def request_start(self, state: GlobalState) -> Tensor:
        """Return the global model, from which the root update is trained."""
        return state.model

    def absorb(self, state: GlobalState, judged: Judged) -> tuple[GlobalState, Sequence[str]]:
        """Move the global model by the mean of the updates, weighted by trust."""
        uploads = judged.staying
        if uploads.root is None:
            raise InputError("fltrust needs a root set: data that no client has", code="missing-root")
        step = trusted_step(uploads.updates, uploads.root) if len(uploads) else None
        return state.moved(step), ()
