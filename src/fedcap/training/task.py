"""A task for one client: train for a round, train a request, or test models.

A `TaskRunner` holds what is fixed over a run; `run` does one `Task` with one client's samples. The result
depends on the task, the samples, the models, the client state and the seed alone. So any process may do a
task, in any order, as often as needed. On more than one thread sums may differ in their last bits: use
`single_thread` where that matters.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from fedcap.products import Products, chosen_products, fast_products
from fedcap.rng import derived_seed, seed_globally
from fedcap.state import Samples, Tensors
from fedcap.training.evaluation import AnswerCounts, evaluate
from fedcap.training.network import Network, fresh_network, mean_cross_entropy
from fedcap.training.sgd import SGD, Learner, balanced_weights, fit

if TYPE_CHECKING:
    from fedcap.methods.base import Method

ROOT = "root set"
"""The client's name in the task by which a server trains on its own samples."""


@dataclass(frozen=True)
class LocalData:
    """One client's samples."""

    train: Samples
    test: Samples


@dataclass(frozen=True)
class ClientUpdate:
    """What a client has after it trained for a round."""

    update: Tensor
    """D: what it sends."""
    state: Tensors
    """The client state for the next round, with the same names and shapes as before."""
    feedback: Tensor | None = None
    """A few values that it sends in addition, if the method asks for any."""


class LocalClient:
    """One client during a task: its training samples, and learners to train on them."""

    def __init__(
        self, samples: Samples, sgd: SGD, generator: torch.Generator, networks: Iterator[Network]
    ) -> None:
        self.samples = samples
        self.cache: dict[str, Any] = {}
        """For results that a method uses in `received_model` and again in `train`."""
        self._sgd = sgd
        self._generator = generator
        self._networks = networks

    @cached_property
    def class_weights(self) -> Tensor | None:
        """The weights of the classes in the client's loss, if they are not 1."""
        return None if self._sgd.class_weights is None else balanced_weights(self.samples.y)

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the client's mean loss, in which classes have their weights."""
        return mean_cross_entropy(logits, y, self.class_weights)

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
        samples = self.samples if samples is None else samples
        fit(learners, samples, self._sgd, self._generator, self.class_weights)


@dataclass(frozen=True)
class Task:
    """A task for one client."""

    kind: Literal["train", "request", "evaluate"]
    client: str
    """The client's name; its random numbers depend on it."""
    round: int
    models: tuple[int, ...] = ()
    """The rows of the round's matrix of models that the client receives."""
    row: int = 0
    """The client's place in the data that the worker pool was opened with."""
    evaluate: bool = False
    """Test the model received; with "train", also the personal model after training."""
    has_personal: bool = True
    """With "evaluate": whether the client has a personal model, which is then tested too."""
    count_classes: bool = False
    """Where models are tested, also count the answers class by class."""


@dataclass(frozen=True)
class TaskResult:
    """The result of a task. The tensors may be buffers of the runner: copy them before the next task."""

    update: Tensor | None = None
    """D: what the client sends, after "train" and "request"."""
    state: Tensors | None = None
    """The client state after "train"."""
    received: Tensor | None = None
    """D: the model that the client had before it trained, if it received one."""
    feedback: tuple[float, ...] = ()
    """What the client sends in addition to its update."""
    is_finite: bool = True
    """Whether the update and the client state are finite in every value."""
    received_correct: int | None = None
    """The number of test samples that the model received answers correctly, if it was tested."""
    personal_correct: int | None = None
    """The same number for the personal model."""
    received_classes: AnswerCounts | None = None
    """The answers of the model received, class by class, if the task asks for them."""
    personal_classes: AnswerCounts | None = None
    """The same counts for the personal model."""
    seconds_training: float = 0.0
    seconds_evaluating: float = 0.0

    def without_tensors(self) -> TaskResult:
        """Return the result without the tensors, which worker pools transfer separately."""
        return replace(self, update=None, state=None, received=None)


@dataclass(frozen=True)
class TaskRunner:
    """What is fixed over a run: how to build the network, the method, and the seed."""

    build: Callable[[], nn.Module]
    """A function that builds the network."""
    method: Method[Any]
    sgd: SGD
    seed: int
    """The run's seed, from which the random numbers of each task are derived."""
    size: int
    """D: the number of weights of a model."""
    device: str = "cpu"
    model: str = ""
    """The network's name in error messages."""
    classes: int | None = None
    """The number of logits that the network must return; if not given, as many as at first."""
    products: Products = field(default_factory=chosen_products)
    """The library that multiplies matrices, in all processes of a run."""
    _networks: list[Network] = field(default_factory=list, init=False, repr=False, compare=False)
    """Networks, built when first needed. The first is only for tests, so they change no learner's weights."""

    def run(self, task: Task, data: LocalData, received: Tensor, own: Tensors) -> TaskResult:
        """Do one task for a client that received k×D models and has the state `own`; neither is changed."""
        with fast_products(self.products), self._client(task, data) as client:
            return self._run(task, client, data.test, received, own)

    def _run(
        self, task: Task, client: LocalClient, test: Samples, received: Tensor, own: Tensors
    ) -> TaskResult:
        began = time.perf_counter()
        model = None if task.kind == "request" else self.method.received_model(client, received, own)
        received_correct, received_classes = None, None
        if task.evaluate and model is not None:
            network = self._network(0)
            network.load(model)
            received_correct, received_classes = self._test(task, test, network.module)
        tested = time.perf_counter()
        made = self._train(task, client, received, own)
        tensors = () if made is None else (made.update, *made.state.values())
        is_finite = all(bool(tensor.isfinite().all()) for tensor in tensors)
        trained = time.perf_counter()
        personal_correct, personal_classes = None, None
        if task.evaluate and (task.kind == "train" or (task.kind == "evaluate" and task.has_personal)):
            module = self.method.predictor(self._network(0), own if made is None else made.state)
            personal_correct, personal_classes = self._test(task, test, module)
        ended = time.perf_counter()
        return TaskResult(
            update=None if made is None else made.update,
            state=made.state if made is not None and task.kind == "train" else None,
            received=model,
            feedback=() if made is None or made.feedback is None else tuple(made.feedback.tolist()),
            is_finite=is_finite,
            received_correct=received_correct,
            personal_correct=personal_correct,
            received_classes=received_classes,
            personal_classes=personal_classes,
            seconds_training=trained - tested,
            seconds_evaluating=tested - began + ended - trained,
        )

    def _train(self, task: Task, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate | None:
        """Train for a round or a request, and check the shapes of the result; None for "evaluate"."""
        if task.kind == "evaluate":
            return None
        seed_globally(self._seed(task))  # the same random numbers, whether or not a model was tested before
        if task.kind == "request":
            learner = client.learner(received[0])
            client.fit(learner)
            return ClientUpdate(learner.weights - received[0], own)
        made = self.method.train(client, received, own)
        sent, expected = tuple(made.update.shape), (self.size,)
        if sent != expected:
            raise ValueError(f"the update should have the shape {expected} (got {sent})")
        before, after = _shapes(own), _shapes(made.state)
        if before != after:
            raise ValueError(f"the client state should stay {before} after training (got {after})")
        return made

    def _test(self, task: Task, test: Samples, module: nn.Module) -> tuple[int, AnswerCounts | None]:
        """Return the test result of a module that was made from the first network."""
        module.eval()
        with torch.no_grad():
            return evaluate(test, lambda x: self._network(0).answer(x, module), task.count_classes)

    @contextmanager
    def _client(self, task: Task, data: LocalData) -> Iterator[LocalClient]:
        """Yield a client with its own generator; torch's global random state is seeded and restored."""
        seed = self._seed(task)
        with torch.random.fork_rng():  # for modules that draw from the global state, such as dropout
            seed_globally(seed)
            generator = torch.Generator().manual_seed(seed)
            networks = (self._network(at) for at in itertools.count(1))
            yield LocalClient(data.train, self.sgd.in_round(task.round), generator, networks)

    def _seed(self, task: Task) -> int:
        return derived_seed(self.seed, task.kind, task.round, task.client)

    def _network(self, index: int) -> Network:
        while len(self._networks) <= index:
            self._networks.append(fresh_network(self.build, 0, self.device, self.model, self.classes))
        return self._networks[index]

    def root_update(self, samples: Samples, number: int, start: Tensor) -> Tensor:
        """Return the update, D, that a server trains on its own root set in a round, from a model, D."""
        task = Task("request", ROOT, number)
        update = self.run(task, LocalData(samples, samples), start[None], {}).update
        assert update is not None
        return update


def _shapes(state: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor, by name."""
    return {name: tuple(tensor.shape) for name, tensor in state.items()}
