"""Small networks, samples and trainers for the tests of training; worker processes can import them too."""

from __future__ import annotations

import copy
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedcap.methods.base import Method
from fedcap.methods.local import Local
from fedcap.models import builder
from fedcap.state import Samples, Tensors
from fedcap.training import (
    SGD,
    ClientUpdate,
    Layout,
    Learner,
    LocalClient,
    LocalData,
    Network,
    Task,
    TaskResults,
    TaskRunner,
    WorkerPool,
    fit,
    fresh_network,
)

INPUTS, CLASSES = 5, 3


def samples_of(number: int, seed: int = 0) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(number, INPUTS, generator=generator)
    return Samples(x, torch.randint(CLASSES, (number,), generator=generator))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def with_batch_norm(momentum: float | None = 0.1, bias: bool = True) -> nn.Module:
    """A bias before the batch norm has a gradient of zero, of which rounding errors are left."""
    return nn.Sequential(
        nn.Linear(INPUTS, 8, bias=bias),
        nn.BatchNorm1d(8, momentum=momentum),
        nn.ReLU(),
        nn.Linear(8, CLASSES),
    )


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, CLASSES))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def initial_weights(build: Callable[[], nn.Module], seed: int) -> Tensor:
    return fresh_network(build, seed).weights


def flat(module: nn.Module) -> Tensor:
    """Return all weights in the documented order: trained ones, frozen ones, then the buffers."""
    parameters = list(module.parameters())
    parts = [p for p in parameters if p.requires_grad] + [p for p in parameters if not p.requires_grad]
    parts += [b for b in module.buffers() if b.is_floating_point()]
    return torch.cat([part.detach().flatten() for part in parts]).clone()


def steps_by_hand(
    module: nn.Module,
    batches: list[Tensor],
    samples: Samples,
    lr: float,
    anchor: Sequence[Tensor] = (),
    pull: float = 0.0,
    optimiser: type[torch.optim.Optimizer] = torch.optim.SGD,
    clip: float | None = None,
    **options: Any,
) -> Tensor:
    """Plain PyTorch: a copy of the module, a new optimiser, the loss written out."""
    module = copy.deepcopy(module).train()
    learnt = [p for p in module.parameters() if p.requires_grad]
    steps = optimiser(learnt, lr=lr, **options)
    for batch in batches:
        steps.zero_grad()
        loss = functional.cross_entropy(module(samples.x[batch]), samples.y[batch])
        for p, a in zip(learnt, anchor, strict=bool(anchor)):
            loss = loss + pull / 2 * ((p - a.detach()) ** 2).sum()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(learnt, clip)
        steps.step()
    return flat(module)


def batches_in_order(total: int, size: int, epochs: int, drop_last: bool) -> list[Tensor]:
    one = [torch.arange(start, min(start + size, total)) for start in range(0, total, size)]
    if drop_last and len(one) > 1 and len(one[-1]) < size:
        one.pop()
    return one * epochs


def trained(module: nn.Module, samples: Samples, sgd: SGD, seed: int = 0) -> Tensor:
    learner = Learner(Network(copy.deepcopy(module)), flat(module))
    fit([learner], samples, sgd, seeded(seed))
    return learner.weights.clone()


def assert_near(found: Tensor, expected: Tensor):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def module_at(build: Callable[[], nn.Module], weights: Tensor) -> nn.Module:
    network = Network(build())
    network.weights.copy_(weights)
    return network.module


def client_of(build: Callable[[], nn.Module], samples: Samples, sgd: SGD) -> LocalClient:
    return LocalClient(samples, sgd, seeded(), (Network(build()) for _ in count()))


@dataclass(frozen=True)
class Alone(Local):
    """Trains the model received, which becomes the personal one."""

    def received_model(self, client: LocalClient, received: Tensor, own: Tensors) -> Tensor | None:
        return received[0] if len(received) else None

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        learner = client.learner(received[0])
        client.fit(learner)
        return ClientUpdate(learner.weights - received[0], {"personal": learner.weights})


@dataclass(frozen=True)
class Pair(Alone):
    """Trains a personal model, pulled towards the one received, and a shared one."""

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        personal = client.learner(own["personal"], anchor=received[0], pull=0.5)
        learner = client.learner(received[0])
        client.fit(personal, learner)
        return ClientUpdate(learner.weights - received[0], {"personal": personal.weights})


@dataclass(frozen=True)
class Collector(Alone):
    """Has a state of two models, both still in their networks, and a matrix; sends two values as feedback."""

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        other, personal = client.learner(received[0]), client.learner(own["personal"])
        client.fit(other, personal)
        state = {"matrix": own["matrix"] + 1, "personal": personal.weights, "other": other.weights}
        return ClientUpdate(other.weights - received[0], state, torch.tensor([0.5, len(client.samples)]))


@dataclass(frozen=True)
class Swapper(Alone):
    """Stores the model that it receives, and the personal model from before."""

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        return ClientUpdate(received[0], {"personal": received[0], "former": own["personal"]})


@dataclass(frozen=True)
class Forgetful(Alone):
    """Returns a state with other names."""

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        return ClientUpdate(received[0], {"souvenir": received[0]})


@dataclass(frozen=True)
class Brief(Alone):
    """Sends an update that is too short."""

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        return ClientUpdate(received[0, :1], own)


@dataclass(frozen=True)
class DiesOnce(Pair):
    """Kills the first process in which it has trained."""

    marker: str = ""

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        trained = super().train(client, received, own)
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return trained
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


@dataclass(frozen=True)
class DiesAtTwelve(Pair):
    """Kills every process that trains a client with twelve samples."""

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        if len(client.samples) == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train(client, received, own)


@dataclass(frozen=True)
class RaisesAtTwelve(Pair):
    """Fails with a client that has twelve samples."""

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        if len(client.samples) == 12:
            raise ArithmeticError("the abacus broke")
        return super().train(client, received, own)


@dataclass(frozen=True)
class Sleepy(Alone):
    """Sleeps before it trains."""

    seconds: float = 0.0

    def train(self, client: LocalClient, received: Tensor, own: Tensors) -> ClientUpdate:
        time.sleep(self.seconds)
        return super().train(client, received, own)


def images(number: int, seed: int) -> Samples:
    generator = seeded(seed)
    x = torch.rand(number, 1, 8, 8, generator=generator) * 2 - 1
    return Samples(x, torch.randint(10, (number,), generator=generator))


def runner_of(method: Method[Any]) -> TaskRunner:
    """The network for digits."""
    build = builder("cnn-digits", (1, 8, 8), 10)
    sgd = SGD(lr=0.05, epochs=2, batch_size=5)
    return TaskRunner(build, method, sgd, seed=4, size=Layout.of(build()).size)


def data_of() -> list[LocalData]:
    """Six clients, "0" to "5"; client k has 10 + k samples to train on."""
    return [LocalData(images(10 + k, k), images(8, 100 + k)) for k in range(6)]


def linear() -> nn.Module:
    return nn.Linear(INPUTS, CLASSES)


def tiny_runner(method: Method[Any]) -> TaskRunner:
    return TaskRunner(linear, method, SGD(lr=0.1, epochs=2, batch_size=5), seed=11, size=18)


def tiny_data() -> list[LocalData]:
    """Three clients, "a" to "c"."""
    return [LocalData(samples_of(13 + n, n), samples_of(9, 50 + n)) for n in range(3)]


def tiny_tasks(number: int = 1, rows: tuple[int, ...] = (0,)) -> list[Task]:
    """The training of each of the three."""
    return [Task("train", client, number, rows, row=row) for row, client in enumerate("abc")]


def models_of(runner: TaskRunner) -> Tensor:
    """Two models to receive, 2×D."""
    return torch.stack([initial_weights(runner.build, seed) for seed in range(2)])


def states_of(runner: TaskRunner, tasks: Sequence[Task]) -> list[Tensors]:
    """A personal model for the client of each task."""
    return [{"personal": initial_weights(runner.build, 50 + ord(task.client[0]))} for task in tasks]


TASKS = [
    *(Task("train", str(k), 1, (k % 2,), evaluate=True, row=k) for k in range(5)),
    Task("request", "5", 1, (0,), row=5),
    Task("evaluate", "5", 1, (1,), evaluate=True, row=5),
]

Bits = tuple[Tensor, list[Tensors], list[tuple[int | None, int | None, bool]]]


def run(
    pool: WorkerPool, tasks: Sequence[Task], models: Tensor, states: Sequence[Tensors]
) -> tuple[TaskResults, list[Tensors]]:
    """The results of the tasks, and each client's state after its task."""
    after = list(states)

    def store(place: int, state: Tensors) -> None:
        after[place] = {name: tensor.clone() for name, tensor in state.items()}

    return pool.run(tasks, models, states.__getitem__, store=store), after


def outcome(pool: WorkerPool, runner: TaskRunner | None, tasks: Sequence[Task] = TASKS) -> Bits:
    """The results of the tasks; without a runner, the pool goes on with the one it has."""
    if runner is not None:
        pool.open(runner, data_of())
    runner = runner_of(Alone())
    found, states = run(pool, tasks, models_of(runner), states_of(runner, tasks))
    hits = [(done.received_correct, done.personal_correct, done.is_finite) for done in found.results]
    return found.updates, states, hits


def assert_same(found: Bits, expected: Bits) -> None:
    assert torch.equal(found[0], expected[0])
    for ours, theirs in zip(found[1], expected[1], strict=True):
        assert torch.equal(ours["personal"], theirs["personal"])
    assert found[2] == expected[2]


def children(of: int) -> set[int]:
    """Return the child processes of a process, as the kernel lists them."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == of:
            found.add(int(stat.parent.name))
    return found


def own_children() -> set[int]:
    return children(os.getpid())
