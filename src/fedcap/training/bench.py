"""Where a client's work is done: its data, its networks, and the jobs that a round asks of it.

A `Bench` holds what is fixed over a run; `perform` does one `Job` for one client. It depends on the
job, the weights and the seed alone, so any process may do it, in any order, as often as it likes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from fedcap.randomness import derived_seed
from fedcap.samples import Samples
from fedcap.training.fit import SGD, Learner, fit
from fedcap.training.network import Network, fresh_network

EVALUATION_BATCH = 4096

Answer = Callable[[Network, Tensor, Tensor], Tensor]
"""From a network, weights and inputs to logits."""


@dataclass(frozen=True)
class Trained:
    """What a client has after its round: the update it sends, and the model it keeps."""

    update: Tensor
    personal: Tensor
    extra: Tensor | None = None
    """A few numbers more to send, if the method asks for any."""


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
        """Return a network that none of this client's learners has."""
        return next(self._networks)

    def learner(self, weights: Tensor, anchor: Tensor | None = None, pull: float = 0.0) -> Learner:
        """Return a learner that starts at the given weights, pulled towards an anchor if there is one."""
        return Learner(self.network(), weights, anchor, pull)

    def fit(self, *learners: Learner, samples: Samples | None = None) -> None:
        """Train the learners for one round, each on the same mini-batches, in the order given.

        They train on all of the client's samples, unless told on which.
        """
        fit(learners, self.samples if samples is None else samples, self._sgd, self._generator)


class Trainer(Protocol):
    """The client's side of a method.

    `received` is k×D, the models the server sent to this client; `personal` is what the client keeps
    from round to round: a model, or more than that.
    """

    def request(self, client: LocalClient, start: Tensor) -> Tensor:
        """Return the update by which a newcomer asks for its first model."""

    def shared(self, client: LocalClient, received: Tensor, personal: Tensor) -> Tensor | None:
        """Return the model a client has on receipt, before it trains; none if nothing is shared."""

    def personal_logits(self, network: Network, personal: Tensor, x: Tensor) -> Tensor:
        """Return what a client's personal model answers to inputs x."""

    def train(self, client: LocalClient, received: Tensor, personal: Tensor) -> Trained:
        """Train for one round."""


@dataclass(frozen=True)
class Job:
    """One thing asked of one client; `rows` says which rows of the models' matrix it receives."""

    kind: Literal["train", "request", "evaluate"]
    client: int
    round: int
    rows: tuple[int, ...] = ()
    evaluate: bool = False
    """With "train": also test the model received and the personal one after training."""
    holds_personal: bool = True
    """Whether the client has a personal model to test, for "evaluate"."""


@dataclass(frozen=True)
class Performed:
    """What a job found: correctly classified test samples, and what it cost."""

    shared_correct: int | None = None
    personal_correct: int | None = None
    finite: bool = True
    """Whether what the client sends and keeps is a number in every weight."""
    extra: tuple[float, ...] = ()
    """What the client sends besides its update."""
    seconds_training: float = 0.0
    seconds_evaluating: float = 0.0


@dataclass
class Bench:
    """All that is fixed over a run: how to build the network, the trainer, and every client's samples."""

    build: Callable[[], nn.Module]
    trainer: Trainer
    sgd: SGD
    seed: int
    train: Sequence[Samples]
    test: Sequence[Samples]
    size: int
    """Weights of a model, D."""
    device: str = "cpu"
    _networks: list[Network] = field(default_factory=list, init=False, repr=False)

    def _network(self, index: int) -> Network:
        while len(self._networks) <= index:
            self._networks.append(fresh_network(self.build, 0, self.device))
        return self._networks[index]

    def _each_network(self) -> Iterator[Network]:
        index = 0
        while True:
            yield self._network(index)
            index += 1

    @contextmanager
    def _client(self, job: Job) -> Iterator[LocalClient]:
        """Set one client to work, with a generator and a global random state of its own."""
        seed = derived_seed(self.seed, job.kind, job.round, job.client)
        with torch.random.fork_rng():  # for modules that draw from the global state: dropout
            torch.manual_seed(seed)
            generator = torch.Generator().manual_seed(seed)
            yield LocalClient(self.train[job.client], self.sgd, generator, self._each_network())

    def _correct(self, answer: Answer, weights: Tensor, client: int) -> int:
        """Return how many of a client's test samples are classified correctly."""
        samples = self.test[client]
        hits = 0
        for start in range(0, len(samples), EVALUATION_BATCH):
            batch = slice(start, start + EVALUATION_BATCH)
            logits = answer(self._network(0), weights, samples.x[batch])
            hits += int((logits.argmax(dim=1) == samples.y[batch]).sum())
        return hits

    def _shared_correct(self, job: Job, received: Tensor, personal: Tensor) -> int | None:
        with self._client(job) as client:
            shared = self.trainer.shared(client, received, personal)
        return None if shared is None else self._correct(Network.logits, shared, job.client)

    def _personal_correct(self, job: Job, personal: Tensor) -> int:
        return self._correct(self.trainer.personal_logits, personal, job.client)

    def perform(self, job: Job, models: Tensor, personal: Tensor, update: Tensor, kept: Tensor) -> Performed:
        """Do one job; what the client sends goes into `update`, what it keeps into `kept`."""
        received = models[list(job.rows)]
        shared_correct = personal_correct = None
        finite = True
        extra: tuple[float, ...] = ()
        began = time.perf_counter()
        evaluating = 0.0
        if job.evaluate:
            shared_correct = self._shared_correct(job, received, personal)
            if job.kind == "evaluate" and job.holds_personal:
                personal_correct = self._personal_correct(job, personal)
            evaluating += time.perf_counter() - began
        if job.kind == "request":
            with self._client(job) as client:
                update.copy_(self.trainer.request(client, received[0]))
        elif job.kind == "train":
            with self._client(job) as client:
                trained = self.trainer.train(client, received, personal)
            update.copy_(trained.update)
            kept.copy_(trained.personal)
            finite = bool(update.isfinite().all() and kept.isfinite().all())
            extra = () if trained.extra is None else tuple(trained.extra.tolist())
            if job.evaluate:
                tested = time.perf_counter()
                personal_correct = self._personal_correct(job, kept)
                evaluating += time.perf_counter() - tested
        return Performed(
            shared_correct,
            personal_correct,
            finite,
            extra,
            time.perf_counter() - began - evaluating,
            evaluating,
        )
