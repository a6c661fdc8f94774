"""One client: its samples, what it can do with them, and what a method asks it to do.

A `Trainer` is the client's side of a method. It is given a `LocalClient`, which has the training samples
and makes learners, the k×D models received from the server, and what the client kept of the round before.

Where a client's work is done: one job for one client, with nothing but its own samples.

A `Bench` holds what is fixed over a run; `perform` does one `Job`. Its result depends on the job, the
samples, the weights and the seed alone, so any process may do it, in any order, as often as it likes. On
more than one thread sums may differ in their last bits: use `single_thread` where that matters.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from fedcap.products import Products, chosen_products, fast_products
from fedcap.rng import derived_seed, seed_globally
from fedcap.state import Samples, Tensors
from fedcap.training.evaluation import Counts, Findings
from fedcap.training.network import Network, fresh_network
from fedcap.training.sgd import SGD, Learner, fit


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


ROOT = "root set"
"""The client's name in the job by which a server trains on its own samples."""


@dataclass(frozen=True)
class Job:
    """One thing asked of one client."""

    kind: Literal["train", "request", "evaluate"]
    client: str
    """Who the client is; its random numbers depend on this."""
    round: int
    rows: tuple[int, ...] = ()
    """Which rows of the matrix of models the client receives."""
    evaluate: bool = False
    """Test the model received; with "train", also the personal one after training."""
    holds_personal: bool = True
    """With "evaluate": whether the client has a personal model, to be tested too."""
    measure: bool = False
    """Where models are tested, also count their answers class by class."""
    row: int = 0
    """The place of the client among all clients of the worker pool."""


@dataclass(frozen=True)
class Performed:
    """What a job found: correctly classified test samples, and what it cost."""

    shared_correct: int | None = None
    personal_correct: int | None = None
    finite: bool = True
    """Whether what the client sends and keeps is finite in every weight."""
    extra: tuple[float, ...] = ()
    """What the client sends besides its update."""
    seconds_training: float = 0.0
    seconds_evaluating: float = 0.0
    shared_counts: Counts | None = None
    personal_counts: Counts | None = None
    """What the test samples were taken for, if the job is to measure."""


@dataclass(frozen=True)
class Work:
    """What one job made. The tensors may be buffers of the bench: copy them before its next job."""

    performed: Performed
    update: Tensor | None = None
    """D: what the client sends, for "train" and "request"."""
    kept: Tensors | None = None
    """What the client keeps, for "train"."""


@dataclass(frozen=True)
class Bench:
    """What is fixed over a run: how to build the network, what clients do with it, and the seed."""

    build: Callable[[], nn.Module]
    trainer: Trainer
    sgd: SGD
    seed: int
    size: int
    """Weights of a model, D."""
    device: str = "cpu"
    model: str = ""
    """What to call the network when it fails."""
    classes: int | None = None
    """How many logits it must answer with; if not given, as many as at first."""
    products: Products = field(default_factory=chosen_products)
    """Which library multiplies matrices, in all processes of a run."""
    _networks: list[Network] = field(default_factory=list, init=False, repr=False, compare=False)
    """Built when first needed. The first is for testing only, so that tests change no learner's weights."""

    def perform(self, job: Job, data: LocalData, received: Tensor, kept: Tensors) -> Work:
        """Do one job for a client that has received k×D models and keeps `kept`; neither is changed."""
        with fast_products(self.products):
            return self._perform(job, data, received, kept)

    def _perform(self, job: Job, data: LocalData, received: Tensor, kept: Tensors) -> Work:
        began = time.perf_counter()
        shared = self._shared(job, data, received, kept) if job.evaluate else Findings()
        tested = time.perf_counter()
        made = self._made(job, data, received, kept)
        finite = made is None or all(bool(t.isfinite().all()) for t in (made.update, *made.kept.values()))
        trained = time.perf_counter()
        personal = Findings()
        if job.evaluate and (job.kind == "train" or (job.kind == "evaluate" and job.holds_personal)):
            personal = self._personal(job, data, kept if made is None else made.kept)
        ended = time.perf_counter()
        performed = Performed(
            shared.correct,
            personal.correct,
            finite,
            () if made is None or made.extra is None else tuple(made.extra.tolist()),
            seconds_training=trained - tested,
            seconds_evaluating=tested - began + ended - trained,
            shared_counts=shared.counts,
            personal_counts=personal.counts,
        )
        if made is None:
            return Work(performed)
        return Work(performed, made.update, made.kept if job.kind == "train" else None)

    def root_update(self, samples: Samples, number: int, start: Tensor) -> Tensor:
        """Return the update, D, that a server trains on its own root set in a round, from a model, D."""
        job = Job("request", ROOT, number)
        update = self.perform(job, LocalData(samples, samples), start[None], {}).update
        assert update is not None
        return update

    def _made(self, job: Job, data: LocalData, received: Tensor, kept: Tensors) -> Trained | None:
        """Return what training or a request made, none for "evaluate"; a request leaves `kept` as it is."""
        if job.kind == "evaluate":
            return None
        with self._client(job, data) as client:
            if job.kind == "request":
                made = Trained(self.trainer.request(client, received[0]), kept)
            else:
                made = self.trainer.train(client, received, kept)
        sent, expected = tuple(made.update.shape), (self.size,)
        if sent != expected:
            raise ValueError(f"the update should have the shape {expected} (got {sent})")
        before, after = shapes(kept), shapes(made.kept)
        if before != after:
            raise ValueError(
                f"a client that keeps {before} should keep the same after training (got {after})"
            )
        return made

    @contextmanager
    def _client(self, job: Job, data: LocalData) -> Iterator[LocalClient]:
        """Yield a client with a generator of its own; torch's global random state is seeded and restored."""
        seed = derived_seed(self.seed, job.kind, job.round, job.client)
        with torch.random.fork_rng():  # for modules that draw from the global state: dropout
            seed_globally(seed)
            generator = torch.Generator().manual_seed(seed)
            networks = (self._network(at) for at in itertools.count(1))
            yield LocalClient(data.train, self.sgd.in_round(job.round), generator, networks)

    def _network(self, index: int) -> Network:
        while len(self._networks) <= index:
            self._networks.append(fresh_network(self.build, 0, self.device, self.model, self.classes))
        return self._networks[index]

    def shared(self, job: Job, data: LocalData, received: Tensor, kept: Tensors) -> Tensor | None:
        """Return the model, D, that a client has on receipt, before it trains; none if none came."""
        with self._client(job, data) as client:
            return self.trainer.shared(client, received, kept)

    def _shared(self, job: Job, data: LocalData, received: Tensor, kept: Tensors) -> Findings:
        shared = self.shared(job, data, received, kept)
        if shared is None:
            return Findings()
        return Findings.on(data.test, lambda x: self._network(0).logits(shared, x), job.measure)

    def _personal(self, job: Job, data: LocalData, kept: Tensors) -> Findings:
        def answer(x: Tensor) -> Tensor:
            return self.trainer.personal_logits(self._network(0), kept, x)

        return Findings.on(data.test, answer, job.measure)


def shapes(kept: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor, by name."""
    return {name: tuple(tensor.shape) for name, tensor in kept.items()}
