"""The round loop of a simulation: select, send, train, attack, finish, evaluate, record.

It drives any method through its `Server`. It knows which clients are malicious only to let them attack, and
to leave them out of the accuracy. To save memory, a round has one N×D matrix of updates: workers write into
it, the attack replaces rows in it, and the server moves the accepted rows to its top.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from fedcap import models
from fedcap.data import FederatedData
from fedcap.methods.base import Sent
from fedcap.rng import derive, derived_seed
from fedcap.runs import (
    AttackStats,
    History,
    Mixing,
    Result,
    RoundRecord,
    mass_removal,
    outcome_fields,
    summarise,
)
from fedcap.server.index import ClientIndex
from fedcap.server.server import RoundOutcome, Server
from fedcap.server.uploads import Upload
from fedcap.simulation.adversary import Adversary
from fedcap.simulation.evaluation import ClassCounter, Stopwatch, measure_accuracy
from fedcap.simulation.inputs import scaling_tensors
from fedcap.simulation.settings import Setup
from fedcap.simulation.store import ClientStore
from fedcap.state import Tensors, owned, under
from fedcap.training import Network, Task, TaskResult, TaskRunner, WorkerPool, fresh_network

LOG = logging.getLogger("fedcap")
EVALUATION_BLOCK = 256
"""The largest number of clients outside a round that are evaluated at a time."""
SMALLEST_BLOCK = 16
"""The smallest such number, however large the models are."""
BLOCK_WEIGHTS = 1 << 28
"""The largest number of weights in all models of a block together, unless the block is the smallest."""
MOST_TESTED = 5_000
"""With more clients than this, a sample of them is tested by default."""
SAMPLE = 1_000
"""The number of clients in this sample."""


class Observer(Protocol):
    """Follows a run: progress, the run directory, trackers. The run calls a function at each event."""

    def started(self, simulation: Simulation) -> None:
        """The run starts, or continues."""

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """A round is finished."""

    def finished(self, result: Result) -> None:
        """The run is finished."""


class Clients:
    """The clients of a simulation: their samples in a worker pool, and their states in a store."""

    def __init__(
        self,
        data: FederatedData,
        adversary: Adversary,
        runner: TaskRunner,
        pool: WorkerPool,
        network: Network,
        index: ClientIndex,
    ) -> None:
        self.store = ClientStore(runner.device)
        self._adversary = adversary
        self._runner = runner
        self._pool = pool
        self._index = index
        self._first_state = runner.method.client_init(network)
        self.data = adversary.task_data(data, runner.device)
        """What the clients train on and are tested on."""
        pool.open(runner, self.data)

    def requests(self, clients: Sequence[str], start: Tensor, number: int) -> Tensor:
        """Return the updates, N×D, that newcomers train from a model, D, to request their first own model."""
        tasks = [self._task("request", client, number, (0,)) for client in self._adversary.trainers(clients)]
        return self._run(tasks, start[None], clients)[0]

    def train(
        self,
        clients: Sequence[str],
        sent: Sent,
        number: int,
        tested: Collection[str],
        count: bool,
        watch: Stopwatch,
    ) -> tuple[Tensor, dict[str, TaskResult]]:
        """Let the participants train, and test the models of those that are among `tested`.

        Return the honest updates, N×D, and the result of each client that trained. With `count`, the test
        results also have the answers class by class.
        """
        received = dict(zip(clients, sent.index.tolist(), strict=True))
        tasks = [
            self._task(
                "train",
                client,
                number,
                received[client],
                evaluate=client in tested,
                count_classes=count,
            )
            for client in self._adversary.trainers(clients)
        ]
        if not tasks:
            return sent.models.new_zeros(0, self._runner.size), {}
        # Add new clients to the store now, in the order of the round, because tasks finish in any order.
        for task in tasks:
            if task.client not in self.store:
                self.store.put(task.client, self._first_state)
        began = time.perf_counter()
        updates, results = self._run(tasks, sent.models, clients)
        seconds = time.perf_counter() - began
        training = sum(result.seconds_training for result in results.values())
        evaluating = sum(result.seconds_evaluating for result in results.values())
        watch.add("train", seconds * training / (training + evaluating))
        watch.add("evaluate", seconds * evaluating / (training + evaluating))
        return updates, results

    def test(
        self, clients: Sequence[str], sent: Sent, served: Sequence[str], number: int, count: bool
    ) -> dict[str, TaskResult]:
        """Test clients outside the round: the model each would receive, if served, and the personal model.

        A client has a personal model if it has trained, or if the method sends no models.
        """
        received = dict(zip(served, sent.index.tolist(), strict=True))
        tasks = [
            self._task(
                "evaluate",
                client,
                number,
                received.get(client, ()),
                evaluate=True,
                has_personal=not self._runner.method.shares or client in self.store,
                count_classes=count,
            )
            for client in clients
        ]
        return self._run(tasks, sent.models, clients)[1]

    def _task(self, kind: Any, client: str, number: int, received: Sequence[int], **tests: bool) -> Task:
        """Return a task for a client that receives these models; `tests` are the task's flags."""
        return Task(kind, client, number, tuple(received), self._index.row(client), **tests)

    def _run(
        self, tasks: Sequence[Task], sent: Tensor, clients: Sequence[str]
    ) -> tuple[Tensor, dict[str, TaskResult]]:
        """Run the tasks; return the updates, one row per client, and the results by client."""
        place = {client: row for row, client in enumerate(clients)}
        found = self._pool.run(
            tasks,
            sent,
            lambda at: self.store.get(tasks[at].client) or self._first_state,
            [place[task.client] for task in tasks],
            len(clients),
            store=lambda at, state: self.store.put(tasks[at].client, state),
        )
        return found.updates, {task.client: result for task, result in zip(tasks, found.results, strict=True)}


class Simulation:
    """A simulated federation between two rounds; `play` plays the next round."""

    def __init__(self, experiment: Setup, pool: WorkerPool, data: FederatedData | None = None) -> None:
        """Load the experiment's data, unless the data of the clients is given."""
        self.experiment = experiment
        self.method = experiment.trainer
        self.data = experiment.load_data() if data is None else data
        self.names = self.data.names
        """The clients' names, in the order of the data."""
        experiment.check_clients(self.names)
        self.history = History()
        self.mixing: Mixing | None = None
        """The mixing weights of the last round, if models were mixed."""
        device = experiment.device
        build = models.builder(experiment.network, self.data.shape, self.data.classes, self.data.integers)
        model = models.label(experiment.network)
        network = fresh_network(build, derived_seed(experiment.seed, "weights"), device, model)
        self.build = build
        """How to build the network."""
        self.layout = network.layout
        self.server = Server(
            self.method,
            network.weights,
            self.layout,
            experiment.seed,
            experiment.assumed_malicious,
            self.names,
        )
        # Without exchange there is nothing to attack; malicious clients are left out of the accuracy anyway.
        attack = experiment.adversary if self.method.shares else None
        self.adversary = Adversary(attack, experiment.attackers(self.names), experiment.seed)
        self._tested = tested_clients(self.server.clients, self.malicious, experiment)
        self._tested_set = frozenset(self._tested)
        self._scaling = scaling_tensors(self.data)
        self._runner = TaskRunner(
            build,
            self.method,
            experiment.chosen_training,
            experiment.seed,
            self.layout.size,
            device,
            model,
            self.data.classes,
        )
        self._clients = Clients(self.data, self.adversary, self._runner, pool, network, self.server.clients)

    @property
    def store(self) -> ClientStore:
        """The clients' states."""
        return self._clients.store

    @property
    def malicious(self) -> frozenset[str]:
        """The malicious clients."""
        return self.adversary.clients

    @property
    def round(self) -> int:
        """The number of rounds that were played."""
        return len(self.history)

    @property
    def is_finished(self) -> bool:
        """Whether all rounds were played, or no client is left to play them."""
        evaluated = bool(self.history) and self.history[-1].accuracy is not None
        return self.round >= self.experiment.rounds or (self._all_are_removed and evaluated)

    @property
    def _all_are_removed(self) -> bool:
        """Whether all clients are removed; then at most one more round is played, to evaluate the models."""
        removed = self.server.removed
        return len(removed) >= len(self.names) and all(client in removed for client in self.names)

    def result(self) -> Result:
        """Return the result of the run."""
        return summarise(self.history, self.names, self.malicious, self.method.detects)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of the server, the clients and the attack, to be saved.

        It also has the means and deviations by which inputs were standardised. Users of the saved models need
        them; the simulation does not restore them.
        """
        return {
            **under("server", self.server.state_dict()),
            **under("clients", self.store.state_dict()),
            **under("attack", self.adversary.state_dict()),
            **under("scaling", self._scaling),
        }

    def load_state_dict(self, tensors: Tensors) -> None:
        """Restore what `state_dict` returned."""
        self.server.load_state_dict(owned("server", tensors))
        self.store.load_state_dict(owned("clients", tensors))
        self.adversary.load_state_dict(owned("attack", tensors))

    def play(self) -> RoundRecord:
        """Play the next round."""
        watch, number = Stopwatch(), self.round + 1
        is_last = number == self.experiment.rounds or self._all_are_removed
        evaluate = is_last or number % self.experiment.eval_every == 0
        before, sent, asked = self._begin(number, watch)
        clients = self.server.clients.names(sent.ids)
        mixing = Mixing.of(number, clients, self.server.clients.names(sent.pool), sent.mixing)
        entropy, transmitted = sent.mixing_entropy, self._bytes(sent, len(asked))
        to_test = self._tested_set if evaluate else frozenset()
        results, attack, outcome = self._exchange(clients, sent, number, to_test, is_last, watch)
        known = results
        if evaluate and not is_last and self._all_are_removed:
            is_last, known = True, {}  # no round will follow: test all clients again, and count the classes
        shares = self.method.shares
        counter = ClassCounter(self.data.class_names, shares) if is_last else None
        tested = self._evaluate(before, known, number, counter, watch) if evaluate else None
        record = RoundRecord(
            round=number,
            participants=clients,
            asked=asked,
            accuracy=None if tested is None else measure_accuracy(tested, self._sizes(tested, 1), shares),
            weights_entropy=entropy,
            attack=attack,
            diverged=[k for k, result in results.items() if not result.is_finite and k not in self.malicious],
            bytes=transmitted,
            seconds=watch.seconds(),
            tallies=counter.record(tested) if tested and counter else None,
            **outcome_fields(outcome),
        )
        record = self._with_notes(record, tested)
        self.history.append(record)
        self.mixing = mixing
        return record

    def _begin(self, number: int, watch: Stopwatch) -> tuple[Server, Sent, list[str]]:
        """Select the participants, and ask the newcomers among them for an update if the method needs it.

        Return the server before the round, what it sends, and the clients that were asked.
        """
        with watch.on("server"):
            sent = self.server.begin(self.server.select(self.experiment.participation))
            before = self.server.snapshot()
        asked = self.server.clients.names(sent.pending)
        if asked:
            requests = self._requests(asked, sent, number, watch)
            with watch.on("server"):
                sent = self.server.supply(requests)
        return before, sent, asked

    def _exchange(
        self,
        clients: Sequence[str],
        sent: Sent,
        number: int,
        tested: Collection[str],
        count: bool,
        watch: Stopwatch,
    ) -> tuple[dict[str, TaskResult], AttackStats | None, RoundOutcome]:
        """Let the participants train and attack, and the server finish the round with what they send.

        The matrix of updates is released on return.
        """
        updates, results = self._clients.train(clients, sent, number, tested, count, watch)
        with watch.on("server"):
            root = self._root_update(sent, number)

        def uploads() -> list[Upload]:
            return self._uploads(clients, number, updates, results, sent.feedback)

        with watch.on("attack"):
            attack = self.adversary.craft_into(
                updates, clients, _received(sent), self.server, uploads=uploads, root=root
            )
        with watch.on("server"):
            outcome = self.server.finish(uploads(), root, updates)
        return results, attack, outcome

    def _with_notes(self, record: RoundRecord, tested: Collection[str] | None) -> RoundRecord:
        """Add a note if the accuracy is that of a sample, and one if many clients were removed at once.

        The first note about removals is logged, too.
        """
        notes = list(record.notes)
        honest = len(self.names) - len(self.malicious)
        if tested is not None and len(tested) < honest:
            notes.append(f"accuracy of a sample of {len(tested)} of {honest} honest clients")
        warning = mass_removal(record)
        if warning is not None:
            notes.append(warning)
            if not any(map(mass_removal, self.history)):
                LOG.warning(warning)
        return replace(record, notes=notes)

    def _requests(
        self, pending: Sequence[str], sent: Sent, number: int, watch: Stopwatch, timed_as: str = "train"
    ) -> list[Upload]:
        """Return the requests of pending clients: they train updates, and malicious clients attack theirs."""
        assert sent.start is not None
        start = sent.start
        with watch.on(timed_as):
            updates = self._clients.requests(pending, start, number)
        with watch.on("attack"):
            self.adversary.craft_into(updates, pending, lambda _: start[None], self.server, request=True)
        sizes = self._sizes(pending, 0)
        return [
            self.adversary.upload(client, number, row, sizes[client])
            for client, row in zip(pending, updates, strict=True)
        ]

    def _uploads(
        self,
        clients: Sequence[str],
        number: int,
        updates: Tensor,
        results: Mapping[str, TaskResult],
        feedback: int,
    ) -> list[Upload]:
        """Return what the participants send; an attacker that did not train sends zeros as feedback."""
        nothing, sizes = (0.0,) * feedback, self._sizes(clients, 0)
        return [
            self.adversary.upload(
                client,
                number,
                row,
                sizes[client],
                results[client].feedback if client in results else nothing,
            )
            for client, row in zip(clients, updates, strict=True)
        ]

    def _sizes(self, clients: Iterable[str], part: int) -> dict[str, int]:
        """Return the number of training samples (part 0) or of test samples (part 1) of these clients."""
        sizes, index = self.data.sizes[part], self.server.clients
        return {client: int(sizes[index.row(client)]) for client in clients}

    def _root_update(self, sent: Sent, number: int) -> Tensor | None:
        """Train the server's own update on its root set, if it has one."""
        if self.data.root is None or sent.start is None:
            return None
        return self._runner.root_update(self.data.root.to(self.experiment.device), number, sent.start)

    def _evaluate(
        self,
        before: Server,
        results: Mapping[str, TaskResult],
        number: int,
        counter: ClassCounter | None,
        watch: Stopwatch,
    ) -> dict[str, TaskResult]:
        """Return the test results of the clients to be tested, whether they took part in the round or not.

        Clients outside the round are tested with the model that the server would have sent them in it:
        `before` is the server before the uploads. A removed client has only its personal model, a client that
        never trained only the received one.
        """
        found = dict(results)
        if counter is not None:
            found |= counter.take({client: found[client] for client in self._tested if client in found})
        outside = [client for client in self._tested if client not in found]
        size = max(SMALLEST_BLOCK, min(EVALUATION_BLOCK, BLOCK_WEIGHTS // self.layout.size))
        for block in (outside[start : start + size] for start in range(0, len(outside), size)):
            with watch.on("evaluate"):
                sent = before.models_for(block)
            if len(sent.pending):
                pending = before.clients.names(sent.pending)
                requests = self._requests(pending, sent, number, watch, "evaluate")
                with watch.on("evaluate"):
                    sent = before.models_for(block, requests)
            with watch.on("evaluate"):
                served = before.clients.names(sent.ids)
                tests = self._clients.test(block, sent, served, number, counter is not None)
                found |= tests if counter is None else counter.take(tests)
        return {client: found[client] for client in self._tested}

    def _bytes(self, sent: Sent, asked: int) -> int:
        """Count what is transmitted: models to clients, updates from clients, and the same for requests."""
        if not self.method.shares:
            return 0
        clients = len(sent.ids)
        vectors = sent.index.numel() + clients + 2 * asked
        return (vectors * self.layout.size + clients * sent.feedback) * torch.float32.itemsize


def _received(sent: Sent) -> Callable[[int], Tensor]:
    """Return a function from a participant's row to copies of the models it was sent, k×D."""
    return lambda row: sent.models[sent.index[row].to(sent.models.device)]


def tested_clients(index: ClientIndex, malicious: Collection[str], experiment: Setup) -> list[str]:
    """Return the honest clients whose models are tested: all, or a sample that depends on the seed.

    The sample has `eval_clients` clients. If that is not given, more than `MOST_TESTED` clients are sampled.
    """
    honest = torch.ones(len(index), dtype=torch.bool)
    honest[index.rows(list(malicious))] = False
    rows = honest.nonzero().flatten()
    count = experiment.eval_clients
    if count is None:
        count = SAMPLE if len(index) > MOST_TESTED else len(rows)
    if count >= len(rows):
        return index.names(rows)
    if experiment.eval_clients is None:
        LOG.warning(
            "accuracy is that of a sample of %d of the %d honest clients: eval_clients sets another number",
            count,
            len(rows),
        )
    order = torch.randperm(len(rows), generator=derive(experiment.seed, "evaluation sample"))
    return index.names(rows[order[:count]].sort().values)
