"""FedFomo: clients are sent several others' models and mix those that help on their own validation data.

    w_n = (L(θ) − L(θ_n)) / ‖θ_n − θ‖,    θ ← θ + Σ_n [w_n]₊ / Σ [w]₊ · (θ_n − θ),    then train from θ

Reference: Zhang et al., "Personalized federated learning with first order model optimization", ICLR 2021.
θ is the client's own model as of its last round, θ_n those it was sent, L its loss on the last 20 % of its
training samples, which it does not train on. It sends back w besides its update, and the server adds it
to its preference matrix P: next time each client is sent the models it preferred so far, or, with a
probability that falls from `explore` by `decay` a round, a random choice. Each participant receives k models
and sends one update and k numbers: all are counted as traffic.

The server keeps every client's last model. An update is the change of a client's model over the round, so
what an attack makes of it moves the model that the server has of a malicious client, and others are sent
that. A client's w decides only what itself is sent; malicious ones tell the truth, or zeros if they do not
train. A model that gives no numbers counts as one that did not help at all, w_n = −1; updates that are not
finite are refused. An upload that is lost or refused leaves the server's copy of that client's model behind
by as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from fedcap.methods.base import Dispatch, Judged, Method, Pools, registry
from fedcap.rng import derive
from fedcap.state import Samples, Tensors
from fedcap.training import Layout, LocalClient, Trained


@dataclass(frozen=True)
class FomoState:
    """Everybody's last model, and who preferred whose."""

    start: Tensor
    """D: the common weights, for those of whom the server has no model yet."""
    ids: Tensor
    """P: whose models there are, ascending."""
    models: Tensor
    """P×D."""
    preferences: Tensor
    """P×P: how much the models of the columns have helped the clients of the rows, summed over rounds."""
    rounds: Tensor
    """How many rounds have been played."""


def fomo_weights(own_loss: Tensor, losses: Tensor, distances: Tensor) -> Tensor:
    """Return how much each model helps, n: the loss it saves per distance; −1 if not finite."""
    weights = (own_loss - losses) / distances
    weights = torch.where(distances == 0, 0, weights)
    return torch.where(losses.isfinite() & weights.isfinite(), weights, -1)


def mix(own: Tensor, models: Tensor, weights: Tensor) -> Tensor:
    """Return the own model moved towards those that help, D, in proportion to their weights."""
    helps = weights > 0
    if not bool(helps.any()):
        return own
    shares = weights[helps] / weights[helps].sum()
    return own + shares @ (models[helps] - own)


@registry.register("fedfomo")
@dataclass(frozen=True)
class FedFomo(Method[FomoState]):
    """Each client is sent several others' models and mixes those that help on its validation data."""

    state_type: ClassVar[type[Any]] = FomoState

    models: Annotated[int, Field(ge=1)] = 10
    """How many models a client is sent, if there are as many."""
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the training samples, the last ones, that a client weighs models by."""
    explore: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Probability, in the first round, that a client is sent random models."""
    decay: Annotated[float, Field(ge=0, le=1)] = 0.05
    """How much that probability falls each round."""
    seed: int = 0
    """The seed of the server's random choices."""

    def start(self, weights: Tensor, layout: Layout) -> FomoState:
        """Start from the common weights, with nobody's model."""
        return FomoState(
            start=weights,
            ids=torch.empty(0, dtype=torch.long),
            models=weights.new_empty(0, layout.size),
            preferences=torch.empty(0, 0),
            rounds=torch.tensor(0),
        )

    def dispatch(self, state: FomoState, ids: Tensor, requests: Mapping[int, Tensor]) -> Dispatch:
        """Send each participant the models it prefers, none of them its own; at first the common weights."""
        known = len(state.ids)
        if not known:
            return Dispatch.to_all(ids, state.start)
        others = known - int(torch.isin(ids, state.ids).any())
        count = min(self.models, others)
        rows = [self._choose(state, client, count) for client in ids.tolist()]
        return Dispatch(ids, state.models, torch.stack(rows) if rows else torch.empty(0, count).long())

    def extra(self, dispatch: Dispatch) -> int:
        """Ask each client how much each of the models it was sent has helped."""
        return dispatch.rows.shape[1]

    def _choose(self, state: FomoState, client: int, count: int) -> Tensor:
        """Return the rows of the models to send to a client."""
        chance = derive(self.seed, "fedfomo", int(state.rounds), client)
        explored = torch.rand((), generator=chance) < self.explore - self.decay * int(state.rounds)
        order = torch.randperm(len(state.ids), generator=chance)  # so that ties are broken at random
        order = order[state.ids[order] != client]
        at = (state.ids == client).nonzero().flatten()
        if len(at) and not explored:
            liking = state.preferences[at[0], order]
            order = order[liking.argsort(descending=True, stable=True)]
        return order[:count]

    def _parts(self, samples: Samples) -> tuple[Samples, Samples]:
        """Split a client's samples into those to train on and those to weigh models by."""
        held = min(max(1, round(self.validation * len(samples))), len(samples) - 1)
        cut = len(samples) - held
        return Samples(samples.x[:cut], samples.y[:cut]), Samples(samples.x[cut:], samples.y[cut:])

    def _weigh(self, client: LocalClient, received: Tensor, own: Tensor) -> Tensor:
        """Return how much each model received helps on the client's validation samples."""
        _, held = self._parts(client.samples)
        network = client.network()
        losses = torch.stack(
            [functional.cross_entropy(network.logits(w, held.x), held.y) for w in (own, *received)]
        )
        distances = torch.linalg.vector_norm(received - own, dim=1)
        return fomo_weights(losses[0], losses[1:], distances)

    def shared(self, client: LocalClient, received: Tensor, kept: Tensors) -> Tensor | None:
        """Return the client's own model, mixed with those that help."""
        own = kept["personal"]
        return mix(own, received, self._weigh(client, received, own))

    def train(self, client: LocalClient, received: Tensor, kept: Tensors) -> Trained:
        """Mix, train from there on all but the validation samples, and say how much each model helped."""
        own = kept["personal"]
        weights = self._weigh(client, received, own)
        learner = client.learner(mix(own, received, weights))
        client.fit(learner, samples=self._parts(client.samples)[0])
        return Trained(learner.weights - own, {"personal": learner.weights}, extra=weights)

    def absorb(self, state: FomoState, judged: Judged) -> tuple[FomoState, Sequence[str]]:
        """Keep the participants' models, and add the weights they sent to the preferences."""
        uploads, dispatch = judged.staying, judged.dispatch
        ids = torch.unique(torch.cat([state.ids, uploads.ids]))
        before, now = torch.searchsorted(ids, state.ids), torch.searchsorted(ids, uploads.ids)
        models = state.start.repeat(len(ids), 1)
        models[before] = state.models
        models[now] += uploads.updates
        preferences = torch.zeros(len(ids), len(ids))
        preferences[before[:, None], before] = state.preferences
        if len(state.ids) and uploads.extra is not None:
            sent = before[dispatch.rows[torch.searchsorted(dispatch.ids, uploads.ids)]]
            preferences[now[:, None], sent] += uploads.extra.cpu()
        after = FomoState(state.start, ids, models, preferences, state.rounds + 1)
        return self.forget(after, judged.removed), ()

    def forget(self, state: FomoState, ids: Tensor) -> FomoState:
        """Drop these clients' models, and what was said of them."""
        left = ~torch.isin(state.ids, ids)
        if bool(left.all()):
            return state
        return replace(
            state,
            ids=state.ids[left],
            models=state.models[left],
            preferences=state.preferences[left][:, left],
        )

    def pools(self, state: FomoState) -> Pools:
        """Return everybody's last model."""
        return Pools(state.ids, state.models)
