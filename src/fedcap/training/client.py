"""One client: its samples, what it can do with them, and what a method asks it to do.

A `Trainer` is the client's side of a method. It is given a `LocalClient`, which has the training samples
and makes learners, the k×D models received from the server, and what the client kept of the round before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedcap.state import Samples, Tensors
from fedcap.training.fit import SGD, Learner, fit
from fedcap.training.network import Network


@dataclass(frozen=True)
class LocalData:
    """One client's samples."""

    train: Samples
    test: Samples


@dataclass(frozen=True)
class Trained:
    """What a client has after its round."""

    update: Tensor
    """D: what it sends."""
    kept: Tensors
    """What it keeps for the next round, with the names and shapes of what it kept before."""
    extra: Tensor | None = None
    """A few more numbers to send, if the method asks for any."""


class LocalClient:
    """One client at work: its training samples, and learners to train on them."""

    def __init__(
        self, samples: Samples, sgd: SGD, generator: torch.Generator, networks: Iterator[Network]
    ) -> None:
        self.samples = samples
        self._sgd = sgd
        self._generator = generator
        self._networks = networks

    def network(self) -> Network:
        """Return a network that no learner of this client uses."""
        return next(self._networks)

    def learner(self, weights: Tensor, anchor: Tensor | None = None, pull: float = 0.0) -> Learner:
        """Return a learner that starts at the given weights, pulled towards an anchor if there is one."""
        return Learner(self.network(), weights, anchor, pull)

    def fit(self, *learners: Learner, samples: Samples | None = None) -> None:
        """Train the learners for one round, each on the same mini-batches, in the order given.

        They train on all of the client's training samples, or on those given.
        """
        fit(learners, self.samples if samples is None else samples, self._sgd, self._generator)


class Trainer(Protocol):
    """The client's side of a method.

    `received` is k×D, the models that the server sent to this client. `kept` is what the client keeps from
    round to round, by name: "personal" is its personal model, D, and a method may keep more. Each is
    float32, and names and shapes stay the same over a run.
    """

    def request(self, client: LocalClient, start: Tensor) -> Tensor:
        """Return the update by which a newcomer asks for its first model, D."""

    def shared(self, client: LocalClient, received: Tensor, kept: Tensors) -> Tensor | None:
        """Return the model that a client has on receipt, before it trains; none if nothing is shared."""

    def personal_logits(self, network: Network, kept: Tensors, x: Tensor) -> Tensor:
        """Return the logits of a client's personal model for inputs x, computed with the network given."""

    def train(self, client: LocalClient, received: Tensor, kept: Tensors) -> Trained:
        """Train for one round."""
