"""FedCAP: mix a model for each client, train a personal model on it, and remove malicious clients for good.

Reference: Li et al., "FedCAP: Robust federated learning via customized aggregation and personalization",
ACSAC 2024, Algorithm 1. Each round

  1. the server mixes a model for each participant k from the pool of last round's models, by the similarity
     of calibrated updates (Eqs. 3 to 5). r_k is the calibrated update of client k in the pool; a client that
     is not in the pool, a newcomer, first sends an update r_k:

        ŵ_k = Σ_i β_ki w̃_i,    β_kk = φ,    β_ki = (1 − φ) · softmax_i(α · cos(r_k, d̃_i)) for i ≠ k

  2. each client trains its personal model v_k on L(v) + λ/2 ‖v − ŵ_k‖² (Eq. 7) and a shared model, which
     starts at ŵ_k, on L; it sends the change of the shared model, d_k,
  3. the server recovers the clients' models and calibrates them against the global model w, the mean of the
     pool's models weighted by sample counts (Eq. 6):

        w̃_k = ŵ_k + d_k,    d̃_k = w̃_k − w

     and removes for good each client with ‖d̃_k‖ > T_norm. The models of the others are the next pool.

This is the preset `paper`. Its parts can be switched off, as in the paper's ablation (Table IV). The preset
`hardened` adds bounds against attackers that know the method: see `methods.hardened`. The equations are
functions in `methods.equations`. N is the number of clients in the pool, R that of participants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedcap import detection
from fedcap.detection import Batch, RoundView, Verdict
from fedcap.matrix import Rows, cosines, move_up, to_bfloat16
from fedcap.methods import equations, hardened
from fedcap.methods.base import Choice, Inspection, Method, Sent, registry
from fedcap.methods.ditto import train_pair
from fedcap.registry import GIVEN, as_table
from fedcap.state import Tensors
from fedcap.training import ClientUpdate, Layout, LocalClient, Network


def _nothing() -> Tensor:
    return torch.empty(0, 0)


@dataclass(frozen=True)
class FedCAPState:
    """The global model, and the pool: the models of last round's participants whose uploads counted.

    Fields with a default may be missing in a state that an older version saved.
    """

    model: Tensor
    """D: the global model of the last round."""
    ids: Tensor
    """N: the clients of the pool, ascending."""
    models: Tensor
    """N×D: their recovered models; `models − model` are their calibrated updates. With `pools = "bfloat16"`
    the calibrated updates themselves, in bfloat16: the models would lose small changes."""
    updates: Tensor
    """N×D: their updates as sent, if `calibrate` is off; else empty."""
    samples: Tensor
    """N: their sample counts."""
    compared: Tensor
    """Two numbers: start and stop of the columns (weights) that cosines compare."""
    norms: Tensor
    """N: the norms of their calibrated updates. Only the hardened preset uses them."""
    votes: Tensor
    """N: their weights in the hardened preset: duplicates share one vote, suspected clients have none."""
    gains: Tensor = field(default_factory=_nothing)
    """N×N: how much the client of each row gains from the model of each column, if hardened; else empty."""
    likeness: Tensor = field(default_factory=_nothing)
    """N×N: the cosines between the updates, if hardened and whole updates are compared; else empty."""

    @property
    def recovered(self) -> Tensor | Rows:
        """The models of the pool, N×D."""
        return Rows(self.models, -self.model) if self.models.dtype == torch.bfloat16 else self.models

    @property
    def calibrated(self) -> Rows:
        """The calibrated updates of the pool, N×D."""
        return Rows(self.models, None if self.models.dtype == torch.bfloat16 else self.model)

    def only(self, mask: Tensor, overwrite: bool = False) -> FedCAPState:
        """Return the state with only those clients in the pool that the mask, N flags, selects.

        With `overwrite`, no other matrix is made: the models are moved to the top of theirs.
        """
        if bool(mask.all()):
            return self
        return replace(
            self,
            ids=self.ids[mask],
            models=move_up(self.models, mask) if overwrite else self.models[mask],
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
    """A model mixed for each client from the most similar clients; malicious clients are removed for good."""

    preset: Literal["paper", "hardened"] = "paper"
    """`paper` is the paper's method; `hardened` bounds what attackers can do that know it."""
    detectors: Choice | tuple[Choice, ...] = PRESET
    """Detectors of malicious clients: the preset's, or those named. The limit of `norm` is `t_norm`."""
    policy: Choice = PRESET
    """How the detectors' accusations lead to removal: the preset's policy, or the one named."""
    alpha: Annotated[float, Field(ge=0, le=1e4)] | Literal["auto"] = 10.0
    """How sharply similarity decides the mixing weights (Eq. 5); `auto` computes it from the cosines."""
    phi: Annotated[float, Field(ge=0, le=1)] = 0.3
    """A client's share in its own customised model."""
    lambda_: Annotated[float, Field(ge=0, le=1e6)] = 0.1
    """How strongly the personal model is pulled towards the customised one (Eq. 7)."""
    t_norm: Annotated[float, Field(gt=0)] = 10.0
    """The largest norm of an honest client's calibrated update."""
    similarity: Literal["all", "last-layer"] = "all"
    """Compare whole updates, or only the weights of the classifier."""
    customise: bool = True
    """Mix a model for each client; without it, all clients receive the global one."""
    calibrate: bool = True
    """Compare and judge calibrated updates; without it, the updates as they were sent."""
    personalise: bool = True
    """Train a personal model; without it, the personal model is the shared one after training."""
    detect: bool = True
    """Remove clients that the detectors find; without it, no client is ever removed."""
    pools: Literal["float32", "bfloat16"] = "float32"
    """How the server stores the clients' models between rounds; `bfloat16` takes half the memory between
    rounds."""

    @property
    def hardened(self) -> bool:
        """Whether mixing, reference and personal model are bounded against attackers that know them."""
        return self.preset == "hardened"

    @property
    def revised(self) -> list[str]:
        """The detectors with a revision, and the revision of the hardened preset."""
        return [*super().revised, *([f"guard {hardened.REVISION}"] if self.hardened else [])]

    def _detectors(self) -> Sequence[Choice]:
        """Return the detectors; the paper's takes its limit from `t_norm`."""
        chosen = DETECTORS[self.preset] if self.detectors == PRESET else super()._detectors()
        return [self._with_t_norm(choice) for choice in chosen] if self.detect else []

    def _policy(self) -> Choice:
        """Return the policy: the preset's, unless another one is chosen."""
        return POLICIES[self.preset] if self.policy == PRESET else self.policy

    def _with_t_norm(self, choice: Choice) -> Choice:
        """Return a detector with the limit `t_norm`, if it is `norm` and has no limit of its own."""
        table = as_table(detection.registry.table(choice), "detector")
        is_norm = GIVEN not in table and detection.registry.resolve(table["name"]) == "norm"
        return {"limit": self.t_norm, **table} if is_norm else table

    def settings(self) -> dict[str, Any]:
        """Return all options but the default of `pools`, which earlier versions did not have.

        A limit of `norm` that equals `t_norm` is left out, too: `t_norm` already has it.
        """
        settings = super().settings()
        if settings["pools"] == "float32":
            del settings["pools"]
        for detector in settings["detectors"]:
            if detector["name"] == "norm" and detector["limit"] == self.t_norm:
                del detector["limit"]
        return settings

    def init(self, weights: Tensor, layout: Layout) -> FedCAPState:
        """Start from the common weights, with an empty pool."""
        none = weights.new_empty(
            0, layout.size, dtype=torch.bfloat16 if self.pools == "bfloat16" else weights.dtype
        )
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

    def send(self, state: FedCAPState, ids: Tensor, requests: Mapping[int, Tensor] | None = None) -> Sent:
        """Send each participant its customised model. While the pool is empty, send the global model to all.

        Participants that are not in the pool are first asked for an update. They train it from the global
        model of the last round, from which the updates in the pool are measured, too.
        """
        if not self.customise or not len(state.ids):
            return Sent.to_all(ids, self._global_model(state))
        new = ~torch.isin(ids, state.ids)
        if requests is None and bool(new.any()):
            return Sent.request(ids[new], state.model)
        requests = requests or {}
        ids = ids[~new | torch.tensor([k in requests for k in ids.tolist()], dtype=torch.bool)]
        # Each participant's own row in the pool, or -1 for a newcomer.
        own = torch.searchsorted(state.ids, ids).clamp_max(len(state.ids) - 1)
        own = torch.where(state.ids[own] == ids, own, -1)
        similarities, alpha = self._similarities(state, ids, own, requests)
        if self.hardened:
            weights = hardened.mixing_weights(similarities, own, state.gains, state.votes, alpha, self.phi)
            models = hardened.mix_models(weights, own, state.recovered, state.norms, state.model)
        else:
            weights = equations.mixing_weights(similarities, own, alpha, self.phi)
            models = equations.mix_models(weights, state.recovered)
        index = torch.arange(len(ids))[:, None]
        return Sent(ids, models, index, weights, pool=state.ids, is_fresh=True)

    def _similarities(
        self, state: FedCAPState, ids: Tensor, own: Tensor, requests: Mapping[int, Tensor]
    ) -> tuple[Tensor, float]:
        """Return the cosine of each participant with each client of the pool, R×N (Eq. 4), and alpha."""
        pool = state.calibrated if self.calibrate else Rows(state.updates)
        columns = slice(*state.compared.tolist())
        known = state.likeness.to(state.model) if len(state.likeness) else cosines(pool, pool, columns)
        alpha = equations.choose_alpha(known) if self.alpha == "auto" else self.alpha
        similarities = known[own]
        new = own < 0
        if bool(new.any()):
            requested = Rows(torch.stack([requests[k] for k in ids[new].tolist()]).to(state.model))
            similarities[new] = cosines(requested, pool, columns)
        return similarities, alpha

    def client_init(self, network: Network) -> Tensors:
        """Return the personal model and, if hardened, the least loss of any model received: none so far."""
        state = super().client_init(network)
        if self.hardened and self.personalise:
            return {**state, "least": torch.tensor([hardened.NO_LOSS])}
        return state

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        """Train the personal model, pulled towards the one received, and the shared one."""
        if not self.personalise:
            return super().train(client, received, own)
        if not self.hardened:
            return train_pair(client, received[0], own, self.lambda_)
        floor = hardened.Floor(client, received[0], own["personal"], float(own["least"]))
        trained = train_pair(client, received[0], own, self.lambda_ * floor.worth)
        personal = floor.keep(trained.state["personal"])
        return replace(trained, state={"personal": personal, "least": torch.tensor([floor.least])})

    def view(self, state: FedCAPState, sent: Sent, batch: Batch) -> RoundView:
        """Recover the clients' models, and calibrate them against this round's global model (Eq. 6)."""
        reference = self._global_model(state)
        recovered = sent.take_models(batch.ids).add_(batch.updates)
        calibrated = Rows(recovered, reference) if self.calibrate else Rows(batch.updates)
        return RoundView(batch, calibrated, recovered, reference)

    def update(self, state: FedCAPState, sent: Sent, view: RoundView, verdict: Verdict) -> FedCAPState:
        """Make the recovered models that count the next pool. If none counts, the last pool stays.

        The hardened preset also keeps suspected clients in the pool: they receive mixed models, but have no
        vote, so their models are mixed into no other client's.
        """
        assert view.recovered is not None
        assert view.reference is not None
        counting = view.counting(verdict)
        removed = torch.tensor(list(verdict.removed), dtype=torch.long)
        if not bool(counting.any()):
            return self.forget(state, removed)
        pooled = ~torch.isin(view.ids, removed) & view.finite if self.hardened else counting
        recovered = Rows(view.recovered, view.reference)
        # The bounds of the hardened preset are measured from the reference, even if `calibrate` is off.
        measured = view if self.calibrate else replace(view, calibrated=recovered)
        pool = FedCAPState(
            model=view.reference,
            ids=view.ids,
            models=view.recovered if self.pools == "float32" else to_bfloat16(recovered),
            updates=state.updates[:0] if self.calibrate else view.updates.to(state.updates.dtype, copy=True),
            samples=view.samples,
            compared=state.compared,
            norms=measured.norms if self.hardened else view.norms,
            votes=torch.where(counting, view.votes if self.hardened else 1.0, 0.0),
            gains=hardened.gains(measured) if self.hardened else state.gains[:0, :0],
            likeness=view.cosines if self.hardened and self.similarity == "all" else state.likeness[:0, :0],
        )
        return pool.only(pooled, overwrite=True)  # no other state has these models

    def forget(self, state: FedCAPState, ids: Tensor) -> FedCAPState:
        """Take these clients out of the pool; if the pool is then empty, its global model stays."""
        left = state.only(~torch.isin(state.ids, ids))
        return left if len(left.ids) else replace(left, model=self._global_model(state))

    def _global_model(self, state: FedCAPState) -> Tensor:
        """Return this round's global model (Eq. 6); while the pool is empty, that of the last round."""
        if not len(state.ids):
            return state.model
        if self.hardened:
            return hardened.reference(state.recovered, state.samples, state.norms, state.votes, state.model)
        return equations.global_model(state.recovered, state.samples)

    def inspect(self, state: FedCAPState) -> Inspection:
        """Return the global model, and the models of the pool."""
        models = state.recovered
        whole = models.block(slice(None)) if isinstance(models, Rows) else models
        return Inspection(self._global_model(state), state.ids, whole)
