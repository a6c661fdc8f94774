"""What FedCAP's server remembers from round to round.

FedCAP: a customised model for every client, calibrated updates, removal for good, a personal model.

Reference: Li et al., "FedCAP: Robust federated learning via customized aggregation and
personalization", ACSAC 2024, Algorithm 1. Each round the server

  1. mixes, for each participant, a model from the pool of last round's models, by the likeness of
     their calibrated updates (Eqs. 3 to 5); newcomers are first asked for an update to compare,
  2. recovers each client's model from what it received and sent, calibrates it against the global
     model (Eq. 6), and removes for good whoever's calibrated update is longer than `t_norm`.

Parts can be switched off, as in the paper's ablation (Table IV).

That is the preset `paper`. An attacker who knows it can lie beside an honest client, be mixed into that
client's model, and drive it over the limit. The preset `hardened` differs in five things: detectors that
need no scale (`robust-norm`, `collusion`) and a policy that adds up their evidence over rounds; mixing in
which a contributor's length and weight are bounded, those by whom a client gains less than by most count
less, and copies have one vote (`guard`); a reference that a minority cannot drag; probation, which is to take
part without counting; and a floor, by which a personal model lets go of what has become worse (`floor`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedcap import detection
from fedcap.detection import Look
from fedcap.matrix import Rows, cosines
from fedcap.methods import equations, hardened
from fedcap.methods.base import Choice, Dispatch, Judged, Method, Pools, Uploads, registry
from fedcap.methods.ditto import train_pair
from fedcap.methods.hardened import Floor
from fedcap.registry import GIVEN, as_table
from fedcap.state import Tensors
from fedcap.training import Layout, LocalClient, Network, Trained


def _nothing() -> Tensor:
    return torch.empty(0, 0)


@dataclass(frozen=True)
class FedCAPState:
    """What the server remembers: the global model, and the pools of the last round's participants.

    Mixing can do without what may be empty: a state that was saved before there was such a thing can be read.
    """

    model: Tensor
    """D: the global model of the last round."""
    ids: Tensor
    """N: who is in the pools, ascending."""
    models: Tensor
    """N×D: their recovered models; `models − model` are their calibrated updates."""
    updates: Tensor
    """N×D: their updates as sent, if `calibrate` is off; else empty."""
    samples: Tensor
    """N: their sample counts."""
    compared: Tensor
    """Two numbers: start and stop of the columns that are compared."""
    norms: Tensor
    """N: the lengths of their calibrated updates."""
    votes: Tensor
    """N: how much each one's word counts: a share of one vote for those who sent the same, 0 on probation."""
    gains: Tensor = field(default_factory=_nothing)
    """N×N: what each of them, a row, would gain by each one's model, if mixing is guarded; else empty."""
    likeness: Tensor = field(default_factory=_nothing)
    """N×N: the cosines between their calibrated updates, if they were computed already; else empty."""

    def only(self, mask: Tensor) -> FedCAPState:
        """Return the pools with those clients alone for whom the mask holds."""
        if bool(mask.all()):
            return self
        return replace(
            self,
            ids=self.ids[mask],
            models=self.models[mask],
            updates=self.updates[mask] if len(self.updates) else self.updates,
            samples=self.samples[mask],
            norms=self.norms[mask],
            votes=self.votes[mask],
            gains=self.gains[mask][:, mask] if len(self.gains) else self.gains,
            likeness=self.likeness[mask][:, mask] if len(self.likeness) else self.likeness,
        )


PRESET = "preset"
DETECTORS = {"paper": ("norm",), "hardened": ("robust-norm", "collusion")}
POLICIES = {"paper": "strikes", "hardened": "evidence"}


@registry.register("fedcap")
@dataclass(frozen=True)
class FedCAP(Method[FedCAPState]):
    """A model mixed for each client from those most like it; liars stand out and are removed for good."""

    state_type: ClassVar[type[Any]] = FedCAPState

    preset: Literal["paper", "hardened"] = "paper"
    """`paper` is the paper's method; `hardened` withstands attackers who know it."""
    detectors: Choice | tuple[Choice, ...] = PRESET
    """Who looks for malicious clients: the preset's, or those named. `norm` has `t_norm` for its limit."""
    policy: Choice = PRESET
    """How the detectors' accusations lead to removal: in the preset's way, or as named."""
    alpha: Annotated[float, Field(ge=0, le=1e4)] | Literal["auto"] = 10.0
    """How sharply likeness decides the mixing weights (Eq. 5); `auto` goes by how much likeness varies."""
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
    """Remove clients that the detectors find; without, nobody is ever removed."""

    @property
    def guarded(self) -> bool:
        """Whether mixing, reference and personal model are guarded against attackers who know them."""
        return self.preset == "hardened"

    @property
    def revised(self) -> list[str]:
        """The detectors that were revised, and the guard."""
        return [*super().revised, *([f"guard {hardened.REVISION}"] if self.guarded else [])]

    def _detectors(self) -> Sequence[Choice]:
        """Return the detectors; the paper's takes its limit from `t_norm`."""
        chosen = DETECTORS[self.preset] if self.detectors == PRESET else super()._detectors()
        return [self._with_limit(choice) for choice in chosen] if self.detect else []

    def _policy(self) -> Choice:
        return POLICIES[self.preset] if self.policy == PRESET else self.policy

    def _with_limit(self, choice: Choice) -> Choice:
        table = as_table(detection.registry.table(choice), "detector")
        is_norm = GIVEN not in table and detection.registry.resolve(table["name"]) == "norm"
        return {"limit": self.t_norm, **table} if is_norm else table

    def settings(self) -> dict[str, Any]:
        """Return all options; a limit that is `t_norm` stands there once, so that it can be changed there."""
        settings = super().settings()
        for detector in settings["detectors"]:
            if detector["name"] == "norm" and detector["limit"] == self.t_norm:
                del detector["limit"]
        return settings

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
            norms=torch.empty(0, dtype=torch.float64),
            votes=torch.empty(0, dtype=torch.float64),
        )

    def asks(self, state: FedCAPState, ids: Tensor) -> Tensor:
        """Ask participants that are not in the pools, unless the pools are empty or nothing is customised."""
        if not self.customise or not len(state.ids):
            return torch.zeros(len(ids), dtype=torch.bool)
        return ~torch.isin(ids, state.ids)

    def request_start(self, state: FedCAPState) -> Tensor:
        """Newcomers train their request from the last round's global model."""
        return state.model

    def dispatch(self, state: FedCAPState, ids: Tensor, requests: Mapping[int, Tensor]) -> Dispatch:
        """Send each participant its customised model, or the global one while the pools are empty."""
        if not self.customise or not len(state.ids):
            return Dispatch.to_all(ids, self.global_model(state))
        own = torch.searchsorted(state.ids, ids).clamp_max(len(state.ids) - 1)
        own = torch.where(state.ids[own] == ids, own, -1)
        similarities, alpha = self._similarities(state, ids, own, requests)
        if self.guarded:
            weights = hardened.mixing_weights(similarities, own, state.gains, state.votes, alpha, self.phi)
            models = hardened.customised_models(weights, own, state.models, state.norms, state.model)
        else:
            weights = equations.mixing_weights(similarities, own, alpha, self.phi)
            models = equations.customised_models(weights, state.models)
        return Dispatch(ids, models, torch.arange(len(ids))[:, None], weights, fresh=True)

    def _similarities(
        self, state: FedCAPState, ids: Tensor, own: Tensor, requests: Mapping[int, Tensor]
    ) -> tuple[Tensor, float]:
        """Return how like each participant is to each client of the pools, R×N (Eq. 4), and alpha."""
        pool = Rows(state.models, state.model) if self.calibrate else Rows(state.updates)
        columns = slice(*state.compared.tolist())
        known = state.likeness.to(state.models) if len(state.likeness) else cosines(pool, pool, columns)
        alpha = equations.sharpness(known) if self.alpha == "auto" else self.alpha
        similarities = known[own]
        new = own < 0
        if bool(new.any()):
            asking = Rows(torch.stack([requests[k] for k in ids[new].tolist()]).to(state.models))
            similarities[new] = cosines(asking, pool, columns)
        return similarities, alpha

    def first_kept(self, network: Network) -> Tensors:
        """Keep the personal model and, if it has a floor, the least loss of what was received."""
        kept = super().first_kept(network)
        return {**kept, "least": torch.tensor([torch.inf])} if self.guarded and self.personalise else kept

    def train(self, client: LocalClient, received: Tensor, kept: Tensors) -> Trained:
        """Train the personal model, pulled towards the one received, and the shared one."""
        if not self.personalise:
            return super().train(client, received, kept)
        if not self.guarded:
            return train_pair(client, received[0], kept, self.lambda_)
        floor = Floor(client, received[0], kept["personal"], float(kept["least"]))
        trained = train_pair(client, received[0], kept, self.lambda_ * floor.worth)
        personal = floor.keep(trained.kept["personal"])
        return replace(trained, kept={"personal": personal, "least": torch.tensor([floor.least])})

    def look(self, state: FedCAPState, dispatch: Dispatch, uploads: Uploads) -> Look:
        """Recover the clients' models, and calibrate them against this round's global model."""
        reference = self.global_model(state)
        recovered = dispatch.hand_over(uploads.ids).add_(uploads.updates)
        seen = Rows(recovered, reference) if self.calibrate else Rows(uploads.updates)
        return Look(uploads.round, uploads.ids, uploads.updates, seen, recovered, reference, uploads.samples)

    def absorb(self, state: FedCAPState, judged: Judged) -> tuple[FedCAPState, Sequence[str]]:
        """Keep the recovered models of those who stay as the next pools, if anybody stays."""
        look, stay = judged.look, judged.stay
        assert look.recovered is not None
        assert look.reference is not None
        if not bool(stay.any()):  # the last pools stand as they were, without the removed
            return self.forget(state, judged.removed), ()
        here = ~torch.isin(look.ids, judged.removed) & look.finite if self.guarded else stay
        seen = look if self.calibrate else replace(look, calibrated=Rows(look.recovered, look.reference))
        pools = FedCAPState(
            look.reference,
            look.ids,
            look.recovered,
            look.updates if not self.calibrate else state.updates[:0],
            judged.uploads.samples,
            state.compared,
            seen.norms if self.guarded else look.norms,
            torch.where(stay, look.votes if self.guarded else 1.0, 0.0),
            hardened.gains(seen) if self.guarded else state.gains[:0, :0],
            look.likeness if self.guarded and self.similarity == "all" else state.likeness[:0, :0],
        )
        return pools.only(here), ()

    def forget(self, state: FedCAPState, ids: Tensor) -> FedCAPState:
        """Take these clients out of the pools; while anybody is left, the global model is theirs."""
        left = state.only(~torch.isin(state.ids, ids))
        return left if len(left.ids) else replace(left, model=self.global_model(state))

    def global_model(self, state: FedCAPState) -> Tensor:
        """Return this round's global model (Eq. 6), which is last round's while the pools are empty."""
        if not len(state.ids):
            return state.model
        if not self.guarded:
            return equations.global_model(state.models, state.samples)
        return hardened.robust_reference(state.models, state.samples, state.norms, state.votes, state.model)

    def pools(self, state: FedCAPState) -> Pools:
        """Return the recovered models of the last round's participants."""
        return Pools(state.ids, state.models)
