"""What every method is: pure server steps over explicit state, and one step on the client.

A round, whoever drives it (the simulation here, a federation elsewhere):

    asked    = method.asks(state, ids)                     who must first send a request
    dispatch = method.dispatch(state, ids, requests)       which models go to whom
    trained  = method.train(client, received, personal)    on each client
    state, verdict = method.aggregate(state, dispatch, uploads)

The state is a dataclass of tensors, so that any method's state can be written to disk and read back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from fedcap.matrices import finite_rows
from fedcap.registry import Registry
from fedcap.training import Layout, LocalClient, Network, Trained

S = TypeVar("S")


@dataclass(frozen=True)
class Dispatch:
    """What the server sends: participant n receives the rows `rows[n]` of `models`."""

    ids: Tensor
    """N client ids, ascending."""
    models: Tensor
    """R×D."""
    rows: Tensor
    """N×k; all methods but those that send several models, or none, have k = 1."""
    mixing: Tensor | None = None
    """N×P, if the models were mixed from a pool of P: how much of each went into whose."""

    def received(self, ids: Tensor) -> Tensor:
        """Return the model that each of the given participants received, as rows."""
        at = torch.searchsorted(self.ids, ids)
        if len(at) == len(self.models) and bool((self.rows[at, 0] == torch.arange(len(at))).all()):
            return self.models  # nobody is missing: no copy
        return self.models[self.rows[at, 0].to(self.models.device)]


@dataclass(frozen=True)
class Uploads:
    """What came back and was admitted: a row per client, in ascending order of ids."""

    ids: Tensor
    """N client ids."""
    updates: Tensor
    """N×D."""
    samples: Tensor
    """N sample counts, as claimed and bounded."""
    malicious: int = 0
    """How many rows the server assumes to be malicious; rules that need a number use it."""
    extra: Tensor | None = None
    """N×e: what else the method asked each client for; finite numbers."""
    root: Tensor | None = None
    """D: the update of the server's own root set, for methods that have one."""

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, mask: Tensor) -> Uploads:
        """Return the rows for which the mask holds."""
        return replace(
            self,
            ids=self.ids[mask],
            updates=self.updates[mask],
            samples=self.samples[mask],
            extra=None if self.extra is None else self.extra[mask],
        )


@dataclass(frozen=True)
class Verdict:
    """What the server found about this round's uploads."""

    norms: Mapping[int, float]
    """Length of each client's update as the server judges it."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Clients whose update did not count this round, and why."""
    removed: Mapping[int, str] = field(default_factory=dict)
    """Clients who are out for good, and why."""
    notes: Sequence[str] = ()
    """What else the server had to do otherwise than asked."""


def norms_by_client(ids: Tensor, updates: Tensor) -> dict[int, float]:
    """Return the length of each row, by client."""
    lengths = torch.linalg.vector_norm(updates, dim=1)
    return dict(zip(ids.tolist(), lengths.tolist(), strict=True))


def drop_non_finite(uploads: Uploads) -> tuple[Uploads, dict[int, str]]:
    """Return the rows that are numbers throughout, and a reason for each of the others.

    Those others count among the malicious: so many fewer are assumed among the rest.
    """
    finite = finite_rows(uploads.updates).cpu()
    refused = dict.fromkeys(uploads.ids[~finite].tolist(), "not finite")
    if not refused:
        return uploads, refused
    left = max(0, uploads.malicious - len(refused))
    return replace(uploads.only(finite), malicious=left), refused


@dataclass(frozen=True)
class Method(ABC, Generic[S]):
    """A federated method; options are the fields of the dataclass that implements it."""

    state_type: ClassVar[type[Any]]
    """The dataclass of tensors that is the server's state."""
    shares: ClassVar[bool] = True
    """Whether anything goes to the server at all."""
    root_samples: ClassVar[int] = 0
    """How many clean samples, of nobody's data, the server needs for itself."""

    @property
    def detects(self) -> bool:
        """Whether the server removes clients it finds malicious."""
        return False

    @abstractmethod
    def start(self, weights: Tensor, layout: Layout) -> S:
        """Return the server's state before the first round; all clients start from `weights`."""

    def asks(self, state: S, ids: Tensor) -> Tensor:
        """Return which participants the server must ask for a request first, N flags."""
        return torch.zeros(len(ids), dtype=torch.bool)

    def request_start(self, state: S) -> Tensor:
        """Return the model from which those asked train their request, and the server its root update."""
        raise TypeError(f"{type(self).__name__} asks nobody for a request")

    @abstractmethod
    def dispatch(self, state: S, ids: Tensor, requests: Mapping[int, Tensor]) -> Dispatch:
        """Return the models for these participants; `requests` has an update of each one asked."""

    @abstractmethod
    def aggregate(self, state: S, dispatch: Dispatch, uploads: Uploads) -> tuple[S, Verdict]:
        """Return the state after the round, and what the server found."""

    def request(self, client: LocalClient, start: Tensor) -> Tensor:
        """On the client: return the update by which it asks for its first model."""
        learner = client.learner(start)
        client.fit(learner)
        return learner.weights - start

    def first_personal(self, network: Network) -> Tensor:
        """On the client: return what it keeps before it ever trains; the network has the common weights."""
        return network.weights

    def shared(self, client: LocalClient, received: Tensor, personal: Tensor) -> Tensor | None:
        """On the client: return the model it has on receipt, before training; none if none came."""
        return received[0] if len(received) else None

    def personal_logits(self, network: Network, personal: Tensor, x: Tensor) -> Tensor:
        """On the client: return what its personal model answers to inputs x."""
        return network.logits(personal, x)

    def train(self, client: LocalClient, received: Tensor, personal: Tensor) -> Trained:
        """On the client: train from the model received; keep what came of it."""
        learner = client.learner(received[0])
        client.fit(learner)
        return Trained(learner.weights - received[0], learner.weights)


registry: Registry[Method[object]] = Registry("method", Method, "fedcap.methods")
