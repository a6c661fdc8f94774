"""FedCAP: a customised model for every client, calibrated updates, removal for good, a personal model.

Reference: Li et al., "FedCAP: Robust federated learning via customized aggregation and
personalization", ACSAC 2024, Algorithm 1. Each round the server

  1. mixes, for each participant, a model from the pool of last round's models, by the likeness of
     their calibrated updates (Eqs. 3 to 5); newcomers are first asked for an update to compare,
  2. recovers each client's model from what it received and sent, calibrates it against the global
     model (Eq. 6), and removes for good whoever's calibrated update is longer than `t_norm`.

Three parts can be switched off, as in the paper's ablation (Table IV): `ABLATION` has its five rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedcap.methods import equations
from fedcap.methods.base import Dispatch, Method, Uploads, Verdict, registry
from fedcap.methods.equations import Rows
from fedcap.methods.pair import train_pair
from fedcap.training import Layout, LocalClient, Trained

ABLATION: dict[str, dict[str, Any]] = {
    "customised": {"calibrate": False, "personalise": False},
    "personal": {"customise": False, "calibrate": False, "detect": False},
    "customised + calibrated": {"personalise": False},
    "customised + personal": {"calibrate": False},
    "fedcap": {},
}
"""The rows of the paper's Table IV, as options; the second, personal training alone, is Ditto."""


@dataclass(frozen=True)
class FedCAPState:
    """What the server remembers: the global model, and the pools of the last round's participants."""

    model: Tensor
    """D: the global model of the last round."""
    ids: Tensor
    """N: who is in the pools, ascending."""
    models: Tensor
    """N×D: their recovered models; minus the global model, their calibrated updates."""
    updates: Tensor
    """N×D: their updates as sent, where they are not calibrated; else empty."""
    samples: Tensor
    """N: their sample counts."""
    compared: Tensor
    """Two numbers: first and last + 1 of the columns whose likeness counts."""


@registry.register("fedcap")
@dataclass(frozen=True)
class FedCAP(Method[FedCAPState]):
    """A model mixed for each client from those most like it; liars stand out and are removed for good."""

    state_type: ClassVar[type[Any]] = FedCAPState

    alpha: Annotated[float, Field(ge=0, le=1e4)] = 10.0
    """How sharply likeness decides the mixing weights (Eq. 5)."""
    phi: Annotated[float, Field(ge=0, le=1)] = 0.3
    """A client's share in its own customised model."""
    lambda_: Annotated[float, Field(ge=0)] = 0.1
    """How strongly the personal model is pulled towards the customised one (Eq. 7)."""
    t_norm: Annotated[float, Field(gt=0)] = 10.0
    """A calibrated update longer than this betrays a malicious client."""
    similarity: Literal["all", "last-layer"] = "all"
    """Compare whole updates, or only the classifier's weights."""
    customise: bool = True
    """Mix a model for each client; without, all receive the global one."""
    calibrate: bool = True
    """Compare and judge updates as seen from the global model; without, as they were sent."""
    personalise: bool = True
    """Train a personal model beside the shared one; without, it is the shared one after training."""
    detect: bool = True
    """Remove clients by the length of their updates."""

    @property
    def detects(self) -> bool:
        """Whether clients are removed by the length of their updates."""
        return self.detect

    def start(self, weights: Tensor, layout: Layout) -> FedCAPState:
        """Start from the common weights, with empty pools."""
        none = weights.new_empty(0, layout.size)
        columns = layout.last_layer if self.similarity == "last-layer" else slice(0, layout.size)
        return FedCAPState(
            model=weights,
            ids=torch.empty(0, dtype=torch.long),
            models=none,
            updates=none,
            samples=torch.empty(0, dtype=torch.float64),
            compared=torch.tensor([columns.start, columns.stop]),
        )

    def asks(self, state: FedCAPState, ids: Tensor) -> Tensor:
        """Ask those who are not in the pools, as soon as there are any."""
        if not self.customise or not len(state.ids):
            return torch.zeros(len(ids), dtype=torch.bool)
        return ~torch.isin(ids, state.ids)

    def request_start(self, state: FedCAPState) -> Tensor:
        """Newcomers train their request from the last round's global model."""
        return state.model

    def dispatch(self, state: FedCAPState, ids: Tensor, requests: Mapping[int, Tensor]) -> Dispatch:
        """Send each participant its customised model, or the global one while the pools are empty."""
        if not self.customise or not len(state.ids):
            rows = torch.zeros(len(ids), 1, dtype=torch.long)
            return Dispatch(ids, self._global_model(state)[None], rows)
        own = torch.searchsorted(state.ids, ids).clamp_max(len(state.ids) - 1)
        own = torch.where(state.ids[own] == ids, own, -1)
        weights = equations.mixing_weights(
            self._similarities(state, ids, own, requests), own, self.alpha, self.phi
        )
        models = equations.customised_models(weights, state.models)
        return Dispatch(ids, models, torch.arange(len(ids))[:, None], weights)

    def _similarities(
        self, state: FedCAPState, ids: Tensor, own: Tensor, requests: Mapping[int, Tensor]
    ) -> Tensor:
        """Return how like each participant is to each client of the pools, R×N."""
        pool = Rows(state.models, state.model) if self.calibrate else Rows(state.updates)
        columns = slice(*state.compared.tolist())
        similarities = equations.cosine_similarities(pool, pool, columns)[own]
        new = own < 0
        if bool(new.any()):
            asking = Rows(torch.stack([requests[k] for k in ids[new].tolist()]).to(state.models))
            similarities[new] = equations.cosine_similarities(asking, pool, columns)
        return similarities

    def train(self, client: LocalClient, received: Tensor, personal: Tensor) -> Trained:
        """Train the personal model, pulled towards the one received, and the shared one, in pairs."""
        if not self.personalise:
            return super().train(client, received, personal)
        return train_pair(client, received[0], personal, self.lambda_)

    def aggregate(
        self, state: FedCAPState, dispatch: Dispatch, uploads: Uploads
    ) -> tuple[FedCAPState, Verdict]:
        """Recover, calibrate, remove whoever is too long, and keep the others as the next pools."""
        model = self._global_model(state)
        mixed = dispatch.mixing is not None  # then each had a model of its own, which nobody needs any more
        models = equations.recover(dispatch.received(uploads.ids), uploads.updates, in_place=mixed)
        seen = Rows(models, model) if self.calibrate else Rows(uploads.updates)
        lengths = seen.norms().cpu()
        norms = dict(zip(uploads.ids.tolist(), lengths.tolist(), strict=True))
        out = equations.exceeds(lengths, self.t_norm if self.detect else torch.inf)
        faults = {
            client: f"norm {norms[client]:.4g} over {self.t_norm:g}"
            if math.isfinite(norms[client])
            else "not finite"
            for client in uploads.ids[out].tolist()
        }
        verdict = Verdict(norms, removed=faults) if self.detect else Verdict(norms, refused=faults)
        updates = state.updates[:0] if self.calibrate else uploads.updates
        pools, stay = (uploads.ids, models, updates, uploads.samples), ~out
        if not bool(stay.any()):  # nobody came through: the last pools stand, without the removed
            pools = (state.ids, state.models, state.updates, state.samples)
            stay = ~torch.isin(state.ids, torch.tensor(list(verdict.removed), dtype=torch.long))
        if not bool(stay.all()):
            pools = tuple(pool[stay] if len(pool) else pool for pool in pools)  # type: ignore[assignment]
        return FedCAPState(model, *pools, compared=state.compared), verdict

    def _global_model(self, state: FedCAPState) -> Tensor:
        """Return this round's global model (Eq. 6), which is last round's while the pools are empty."""
        if not len(state.ids):
            return state.model
        return equations.global_model(state.models, state.samples)
