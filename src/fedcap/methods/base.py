"""The interface of a federated method: pure server steps over explicit state, and one step on the client.

The simulation and the federation drive every method in the same way. In a round,

    sent    = method.send(state, ids, requests)          which models go to which clients
    result  = method.train(client, received, own)        on each client
    view    = method.view(state, sent, batch)            what the server sees of the uploads
    verdict = defence(view, memory)                      which clients are removed (`fedcap.detection`)
    state   = method.update(state, sent, view, verdict)  the state after the uploads that count

The state is a dataclass of tensors, so that any method's state can be saved and restored. `ids` are rows of
the client index. N is the number of participants, D that of weights, R that of distinct models that are sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import torch
from pydantic import InstanceOf
from torch import Tensor, nn

from fedcap import fingerprint
from fedcap.aggregators import Aggregator
from fedcap.detection import (
    Batch,
    Defence,
    Detector,
    Policy,
    RoundView,
    Verdict,
    as_policy,
    make_defence,
    policies,
)
from fedcap.matrix import Rows, move_up
from fedcap.registry import Registry
from fedcap.state import Tensors
from fedcap.training import ClientUpdate, Layout, LocalClient, Network

Choice = (
    str
    | dict[str, Any]
    | InstanceOf[Aggregator]
    | InstanceOf[Detector]
    | InstanceOf[Policy]
    | InstanceOf[type[Any]]
)
"""A rule, a detector or a policy: its name, a table of its name and options, an object, or a class."""


def _no_ids() -> Tensor:
    return torch.empty(0, dtype=torch.long)


@dataclass(eq=False)
class Sent:
    """What the server sends in a round: participant n receives the models `models[index[n]]`."""

    ids: Tensor
    """N rows of the client index, ascending."""
    models: Tensor
    """R×D."""
    index: Tensor
    """N×k rows of `models`; k is 1 unless the method sends each client several models, or none."""
    mixing: Tensor | None = None
    """N×P: the weight of each of the pool's P models in each participant's model, if models were mixed."""
    pool: Tensor = field(default_factory=_no_ids)
    """P: the clients whose models are in the pool."""
    pending: Tensor = field(default_factory=_no_ids)
    """Clients that must first train an update from `start` and send it, before there is a model for them."""
    start: Tensor | None = None
    """D: the model from which pending clients train an update; so does the server on its root set, if any."""
    feedback: int = 0
    """The number of values that each client sends in addition to its update."""
    is_fresh: bool = False
    """Whether model n was made for participant n alone: then `take_models` need not copy it."""
    rejected: Mapping[str, str] = field(default_factory=dict)
    """The clients, by name, that receive no model, and why. The server fills it in."""

    @classmethod
    def to_all(cls, ids: Tensor, model: Tensor, start: Tensor | None = None) -> Sent:
        """Send all clients the same model, D."""
        return cls(ids, model[None], torch.zeros(len(ids), 1, dtype=torch.long), start=start)

    @classmethod
    def request(cls, pending: Tensor, start: Tensor) -> Sent:
        """Send no models yet: ask these clients for an update from `start` first."""
        nothing = torch.empty(0, 1, dtype=torch.long)
        return cls(pending[:0], start[None, :][:0], nothing, pending=pending, start=start)

    @property
    def mixing_entropy(self) -> float | None:
        """The mean entropy, in nats, of the weights from which each model was mixed, if models were mixed."""
        if self.mixing is None or not len(self.mixing):
            return None
        return float(torch.special.entr(self.mixing).sum(dim=1).mean())

    def take_models(self, ids: Tensor) -> Tensor:
        """Return the model that each of these participants received, N×D, for the caller to write to.

        Fresh models are not copied but moved together, and this object no longer has them.
        """
        first = self.index[torch.searchsorted(self.ids, ids), 0].to(self.models.device)
        if not self.is_fresh:
            return self.models[first]
        models, self.models = self.models, self.models[:0]
        return move_up(models, torch.isin(torch.arange(len(models), device=first.device), first))


@dataclass(frozen=True)
class Inspection:
    """The models that a server holds."""

    global_model: Tensor | None = None
    """D: the one model for all clients, if the method has one."""
    ids: Tensor | None = None
    """P: the clients of which the server holds a model, if it holds any."""
    models: Tensor | None = None
    """P×D: these clients' models."""


S = TypeVar("S")


@dataclass(frozen=True)
class Method(ABC, Generic[S]):
    """A federated method; options are the fields of the dataclass that implements it.

    On the client, `received` is k×D, the models that the server sent. `own` is the client state: what the
    client keeps from round to round, as named float32 tensors whose names and shapes stay the same over a
    run. "personal" is the client's personal model, D; a method may keep more.
    """

    shares: ClassVar[bool] = True
    """Whether clients and server exchange models at all."""
    root_samples: ClassVar[int] = 0
    """The number of clean samples, which no client has, that the server needs for itself."""

    detectors: Choice | tuple[Choice, ...] = ()
    """Detectors of malicious clients: names, or tables of a name and options."""
    policy: Choice = "strikes"
    """How the detectors' accusations lead to removal."""

    def __post_init__(self) -> None:
        """Build the detectors and the policy now, so that wrong options are reported early."""
        _ = self.defence

    @cached_property
    def defence(self) -> Defence | None:
        """The detectors and the policy over them; None if no client is ever removed."""
        return make_defence(self._detectors(), self._policy())

    @property
    def revised(self) -> list[str]:
        """The parts, with a revision, that give other results than older versions did with these options."""
        return [] if self.defence is None else self.defence.revised

    def _policy(self) -> Choice:
        """Return the policy to build; a method may choose it by its other options."""
        return self.policy

    def _detectors(self) -> Sequence[Choice]:
        """Return the detectors to build; a method may choose them by its other options."""
        return self.detectors if isinstance(self.detectors, tuple | list) else (self.detectors,)

    @property
    def detects(self) -> bool:
        """Whether the server removes clients that it finds malicious."""
        return self.defence is not None and self.shares

    def settings(self) -> dict[str, Any]:
        """Return all options as plain values, in the same form however they were given."""
        detectors = {} if self.defence is None else self.defence.detectors
        return {
            **{option.name: getattr(self, option.name) for option in fields(self)},
            "detectors": [fingerprint.written(name, detector) for name, detector in detectors.items()],
            "policy": policies.canonical(as_policy(self._policy())),
        }

    @abstractmethod
    def init(self, weights: Tensor, layout: Layout) -> S:
        """Return the server's state before the first round; all clients start from `weights`, D."""

    @abstractmethod
    def send(self, state: S, ids: Tensor, requests: Mapping[int, Tensor] | None = None) -> Sent:
        """Return the models for these participants.

        If some of them must first send an update, return `Sent.request` of these. The server then calls
        `send` again with the updates it received, by id. Clients that sent none are left out.
        """

    def view(self, state: S, sent: Sent, batch: Batch) -> RoundView:
        """Return what the server sees of the uploads: the updates as they were sent, unless overridden."""
        return RoundView(batch, Rows(batch.updates))

    @abstractmethod
    def update(self, state: S, sent: Sent, view: RoundView, verdict: Verdict) -> S:
        """Return the state after the round; `view.counted(verdict)` are the uploads that count."""

    def forget(self, state: S, ids: Tensor) -> S:
        """Return the state without these clients, which the operator removed."""
        return state

    def inspect(self, state: S) -> Inspection:
        """Return the models that the server holds."""
        return Inspection()

    def client_init(self, network: Network) -> Tensors:
        """Return the client state before the client's first round; the network has the common weights."""
        return {"personal": network.weights}

    def received_model(self, client: LocalClient, received: Tensor, own: Tensors) -> Tensor | None:
        """Return the model, D, that a client has on receipt, before it trains; None if it received none."""
        return received[0] if len(received) else None

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        """Train for one round on the client. Unless overridden, train the received model and keep it."""
        learner = client.learner(received[0])
        client.fit(learner)
        return ClientUpdate(learner.weights - received[0], {"personal": learner.weights})

    def predictor(self, network: Network, own: Tensors) -> nn.Module:
        """Return the module with which a client predicts, made from the network; it shares its weights."""
        network.load(own["personal"])
        return network.module


registry: Registry[Method[object]] = Registry("method", Method, "fedcap.methods")
