"""FedFomo: clients receive several other clients' models and mix those that help on their validation data.

    w_n = (L(θ) − L(θ_n)) / ‖θ_n − θ‖,    θ ← θ + Σ_n [w_n]₊ / Σ [w]₊ · (θ_n − θ),    then train from θ

Reference: Zhang et al., "Personalized federated learning with first order model optimization", ICLR 2021.
θ is the client's own model of its last round, θ_n those it received, L its loss on the last 20 % of its
training samples, on which it does not train. It sends back w in addition to its update, and the server adds
it to its preference matrix P. Each client is then sent the models that it preferred so far or, with a
probability that falls from `explore` by `decay` a round, a random choice. Each participant receives k models
and sends one update and k numbers; all count as traffic.

The server keeps every client's last model. An update is the change of a client's model over the round, so an
attacked update moves the server's model of a malicious client, and other clients receive that model. A
client's w decides only which models this client receives; malicious clients send the true w, or zeros if they
do not train. A model whose loss is not finite counts as one that did not help, w_n = −1; updates that are not
finite are rejected. An upload that is lost or rejected leaves the server's copy of that client's model behind
by that update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.detection import RoundView, Verdict
from fedcap.errors import InputError
from fedcap.methods.base import Inspection, Method, Sent, registry
from fedcap.rng import derive
from fedcap.state import Samples, Tensors
from fedcap.training import ClientUpdate, Layout, LocalClient

LARGEST = 4 << 30
"""The largest size of all models and preferences, in bytes."""


@dataclass(frozen=True)
class FomoState:
    """All clients' last models, and which clients preferred which."""

    start: Tensor
    """D: the common weights, for clients of which the server has no model yet."""
    ids: Tensor
    """P clients of which the server has a model, ascending."""
    models: Tensor
    """P×D."""
    preferences: Tensor
    """P×P: how much the models of the columns have helped the clients of the rows, summed over rounds."""
    rounds: Tensor
    """The number of rounds that were played."""


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
    """Each client receives several other models and mixes those that help on its validation data."""

    models: Annotated[int, Field(ge=1)] = 10
    """The number of models that a client receives, if there are as many."""
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the training samples, the last ones, by which a client weighs models."""
    explore: Annotated[float, Field(ge=0, le=1)] = 0.3
    """Probability, in the first round, that a client receives random models."""
    decay: Annotated[float, Field(ge=0, le=1)] = 0.05
    """How much that probability falls each round."""
    seed: int = 0
    """The seed of the server's random choices."""

    def init(self, weights: Tensor, layout: Layout) -> FomoState:
        """Start from the common weights, without any client's model."""
        return FomoState(
            start=weights,
            ids=torch.empty(0, dtype=torch.long),
            models=weights.new_empty(0, layout.size),
            preferences=torch.empty(0, 0),
            rounds=torch.tensor(0),
        )

    def send(self, state: FomoState, ids: Tensor, requests: Mapping[int, Tensor] | None = None) -> Sent:
        """Send each participant the models it prefers, but not its own; at first the common weights."""
        known = len(state.ids)
        if not known:
            return replace(Sent.to_all(ids, state.start), feedback=1)
        others = known - int(torch.isin(ids, state.ids).any())
        count = min(self.models, others)
        rows = [self._choose(state, client, count) for client in ids.tolist()]
        index = torch.stack(rows) if rows else torch.empty(0, count).long()
        return Sent(ids, state.models, index, feedback=count)

    def _choose(self, state: FomoState, client: int, count: int) -> Tensor:
        """Return the rows of the models to send to a client."""
        generator = derive(self.seed, "fedfomo", int(state.rounds), client)
        explored = torch.rand((), generator=generator) < self.explore - self.decay * int(state.rounds)
        order = torch.randperm(len(state.ids), generator=generator)  # ties are broken at random
        order = order[state.ids[order] != client]
        at = (state.ids == client).nonzero().flatten()
        if len(at) and not explored:
            liking = state.preferences[at[0], order]
            order = order[liking.argsort(descending=True, stable=True)]
        return order[:count]

    def _split(self, samples: Samples) -> tuple[Samples, Samples]:
        """Split a client's samples into those to train on and those to weigh models by."""
        held = min(max(1, round(self.validation * len(samples))), len(samples) - 1)
        cut = len(samples) - held
        return Samples(samples.x[:cut], samples.y[:cut]), Samples(samples.x[cut:], samples.y[cut:])

    def _mixed(self, client: LocalClient, received: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Return the model mixed on the client, and how much each received model helps; computed once."""
        if "mixed" not in client.cache:
            _, held = self._split(client.samples)
            network = client.network()
            losses = torch.stack([client.loss(network.logits(w, held.x), held.y) for w in (own, *received)])
            distances = torch.linalg.vector_norm(received - own, dim=1)
            weights = fomo_weights(losses[0], losses[1:], distances)
            client.cache["mixed"] = mix(own, received, weights), weights
        mixed: tuple[Tensor, Tensor] = client.cache["mixed"]
        return mixed

    def received_model(self, client: LocalClient, received: Tensor, own: Tensors) -> Tensor | None:
        """Return the client's own model, mixed with those that help."""
        return self._mixed(client, received, own["personal"])[0]

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        """Mix, train from there on all but the validation samples, and return how much each model helped."""
        mixed, weights = self._mixed(client, received, own["personal"])
        learner = client.learner(mixed)
        client.fit(learner, samples=self._split(client.samples)[0])
        return ClientUpdate(learner.weights - own["personal"], {"personal": learner.weights}, weights)

    def update(self, state: FomoState, sent: Sent, view: RoundView, verdict: Verdict) -> FomoState:
        """Keep the participants' models, and add the weights they sent to the preferences."""
        batch = view.counted(verdict)
        ids = torch.unique(torch.cat([state.ids, batch.ids]))
        size = (len(ids) * len(state.start) + len(ids) ** 2) * torch.float32.itemsize
        if size > LARGEST:
            raise InputError(
                f"fedfomo keeps a model of each of the {len(ids)} clients that took part:"
                f" {size / 2**30:.1f} GB, and {LARGEST / 2**30:g} GB are allowed; use fewer clients or"
                " another method",
                code="too-large",
                field="method",
            )
        before, now = torch.searchsorted(ids, state.ids), torch.searchsorted(ids, batch.ids)
        models = state.start.repeat(len(ids), 1)
        models[before] = state.models
        models[now] += batch.updates
        preferences = torch.zeros(len(ids), len(ids))
        preferences[before[:, None], before] = state.preferences
        if len(state.ids) and batch.feedback is not None:
            columns = before[sent.index[torch.searchsorted(sent.ids, batch.ids)]]
            preferences[now[:, None], columns] += batch.feedback.cpu()
        after = FomoState(state.start, ids, models, preferences, state.rounds + 1)
        return self.forget(after, torch.tensor(list(verdict.removed), dtype=torch.long))

    def forget(self, state: FomoState, ids: Tensor) -> FomoState:
        """Return the state without these clients' models and preferences."""
        left = ~torch.isin(state.ids, ids)
        if bool(left.all()):
            return state
        return replace(
            state,
            ids=state.ids[left],
            models=state.models[left],
            preferences=state.preferences[left][:, left],
        )

    def inspect(self, state: FomoState) -> Inspection:
        """Return every client's last model."""
        return Inspection(ids=state.ids, models=state.models)
