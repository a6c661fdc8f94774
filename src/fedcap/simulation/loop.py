"""The one round loop: select, dispatch, train, attack, admit, aggregate, evaluate, record.

It drives any method by the steps of `methods.base`, and knows which clients are malicious only to let
them attack and to leave them out of the accuracy.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from fedcap import models
from fedcap.data import FederatedData
from fedcap.methods.base import Dispatch
from fedcap.methods.intake import Upload
from fedcap.methods.server import Server
from fedcap.randomness import derive, derived_seed
from fedcap.samples import Samples
from fedcap.simulation.experiment import Experiment
from fedcap.simulation.measures import Stopwatch, mean_entropy, measure_accuracy, measure_attack
from fedcap.simulation.record import (
    Accuracy,
    Realised,
    Result,
    RoundRecord,
    finite,
    summarise,
)
from fedcap.training import Bench, Job, Performed, Pool, fresh_network, make_pool, single_thread


class Observer(Protocol):
    """Watches a run from outside: progress, records, trackers."""

    def started(self, simulation: Simulation) -> None:
        """Be told that the run (re)starts."""

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Be told of each round."""

    def finished(self, result: Result) -> None:
        """Be told the result."""


class Simulation:
    """A federation of simulated clients between two rounds, and the step from one to the next."""

    def __init__(self, experiment: Experiment, pool: Pool) -> None:
        self.experiment = experiment
        self.method = experiment.trainer
        self.data = experiment.load_data()
        self.malicious = experiment.roster(len(self.data))
        self.history: list[RoundRecord] = []
        build = models.builder(experiment.model_name, self.data.shape, self.data.classes)
        network = fresh_network(build, derived_seed(experiment.seed, "weights"), experiment.device)
        self.layout, weights = network.layout, network.weights
        self.server = Server(self.method, weights, self.layout, experiment.seed, experiment.malicious)
        self.personal = self.method.first_personal(network).repeat(len(self.data), 1)
        """What each client keeps of its own training, a row each; that of the common weights before."""
        self.has_trained = torch.zeros(len(self.data), dtype=torch.bool)
        self._root = [] if self.data.root is None else [self.data.root]
        """The server's own samples: to the pool it is one client more, the last, whom nobody attacks."""
        self._pool = pool
        device = experiment.device
        pool.open(
            Bench(
                build=build,
                trainer=self.method,
                sgd=experiment.sgd,
                seed=experiment.seed,
                train=[samples.to(device) for samples in (*self._training_data(self.data), *self._root)],
                test=[samples.to(device) for samples in self.data.test],
                size=self.layout.size,
                device=device,
            )
        )

    def _training_data(self, federated: FederatedData) -> list[Samples]:
        """Return what each client trains on; an attack may poison the malicious ones' labels."""
        attack = self.experiment.adversary
        return [
            Samples(samples.x, attack.poison_labels(samples.y, federated.classes))
            if attack is not None and client in self.malicious
            else samples
            for client, samples in enumerate(federated.train)
        ]

    @property
    def round(self) -> int:
        """How many rounds have been played."""
        return len(self.history)

    @property
    def finished(self) -> bool:
        """Whether all rounds have been played."""
        return self.round >= self.experiment.rounds

    def result(self) -> Result:
        """Return what the run came to."""
        return summarise(self.history, len(self.data), self.malicious, self.method.detects)

    def play(self) -> RoundRecord:
        """Play the next round."""
        number = self.round + 1
        watch = Stopwatch()
        every = self.experiment.eval_every
        evaluate = number % every == 0 or number == self.experiment.rounds
        selected = self.server.select(range(len(self.data)), self.experiment.participation, number)
        requests, faults = self._requests(selected, number, watch)
        participants = [k for k in selected if k not in faults]
        with watch.on("server"):
            dispatch = self.server.dispatch(participants, requests)
        updates, performed = self._train(dispatch, number, evaluate, watch)
        sent, realised = self._attack(participants, updates, ("attack", number), watch)
        accuracy = self._evaluate(performed, number, watch) if evaluate else None
        extra = max((len(done.extra) for done in performed.values()), default=0)
        root = self._root_update(number, watch)
        with watch.on("server"):
            uploads = [
                self._upload(k, row, performed.get(k), extra)
                for k, row in zip(participants, sent, strict=True)
            ]
            closing = self.server.close(dispatch, uploads if self.method.shares else [], extra, root)
        verdict = closing.verdict
        record = RoundRecord(
            round=number,
            participants=participants,
            asked=sorted([*requests, *faults]),
            accuracy=accuracy,
            norms=finite(dict(verdict.norms)),
            weights_entropy=mean_entropy(dispatch.mixing),
            refused={**faults, **closing.refused},
            bounded=closing.bounded,
            removed=verdict.removed,
            attack=realised,
            diverged=[k for k, done in performed.items() if not done.finite and k not in self.malicious],
            bytes=self._bytes(dispatch, len(requests) + len(faults), extra),
            seconds=watch.seconds(),
            notes=list(verdict.notes),
        )
        self.history.append(record)
        return record

    def _requests(
        self, clients: Sequence[int], number: int, watch: Stopwatch, part: str = "train"
    ) -> tuple[dict[int, Tensor], dict[int, str]]:
        """Have newcomers send an update to compare them by; malicious ones poison theirs.

        Return the requests, and what is wrong with those that cannot be used.
        """
        asked = self.server.asks(clients)
        if not asked:
            return {}, {}
        start = self.method.request_start(self.server.state)[None]
        jobs = [Job("request", k, number, (0,)) for k in self._who_trains(asked)]
        with watch.on(part):
            outcome = self._pool.run(jobs, start, self.personal)
        honest = self._rows(asked, jobs, outcome.updates)
        sent, _ = self._attack(asked, honest, ("attack request", number), watch)
        return self.server.take_requests(
            asked, [self._upload(k, row) for k, row in zip(asked, sent, strict=True)]
        )

    def _who_trains(self, clients: Sequence[int]) -> list[int]:
        """Leave out attackers whose honest update nobody would look at."""
        attack = self.experiment.adversary
        benign = [k for k in clients if k not in self.malicious]
        idle = attack is not None and not attack.uses_honest_updates and self.method.shares
        return benign if idle and benign else list(clients)

    def _rows(self, clients: Sequence[int], jobs: Sequence[Job], updates: Tensor) -> Tensor:
        """Return a row per client: the update of its job, or zeros if it had none."""
        rows = updates.new_zeros(len(clients), self.layout.size)
        rows[[clients.index(job.client) for job in jobs]] = updates
        return rows

    def _train(
        self, dispatch: Dispatch, number: int, evaluate: bool, watch: Stopwatch
    ) -> tuple[Tensor, dict[int, Performed]]:
        """Let the participants train; return the honest updates, N×D, and what each job found."""
        ids = dispatch.ids.tolist()
        received = dict(zip(ids, dispatch.rows.tolist(), strict=True))
        jobs = [
            Job("train", k, number, tuple(received[k]), evaluate and k not in self.malicious)
            for k in self._who_trains(ids)
        ]
        if not jobs:
            return dispatch.models.new_zeros(0, self.layout.size), {}
        began = time.perf_counter()
        outcome = self._pool.run(jobs, dispatch.models, self.personal)
        took = time.perf_counter() - began
        training = sum(done.seconds_training for done in outcome.performed)
        evaluating = sum(done.seconds_evaluating for done in outcome.performed)
        watch.add("train", took * training / (training + evaluating))
        watch.add("evaluate", took * evaluating / (training + evaluating))
        trained = [job.client for job in jobs]
        self.personal[trained] = outcome.kept
        self.has_trained[trained] = True
        return self._rows(ids, jobs, outcome.updates), dict(zip(trained, outcome.performed, strict=True))

    def _attack(
        self, ids: Sequence[int], updates: Tensor, purpose: tuple[str, int], watch: Stopwatch
    ) -> tuple[Tensor, Realised | None]:
        """Return the rows as sent, and what the attack came to."""
        attack = self.experiment.adversary
        malicious = torch.tensor([k in self.malicious for k in ids], dtype=torch.bool)
        if attack is None or not self.method.shares or not malicious.any():
            return updates, None
        with watch.on("attack"):
            sent = attack(updates, malicious, derive(self.experiment.seed, *purpose))
            return sent, measure_attack(sent, malicious.to(sent.device))

    def _root_update(self, number: int, watch: Stopwatch) -> Tensor | None:
        """Train the server's own update on its root set, if it has one."""
        if not self._root:
            return None
        start = self.method.request_start(self.server.state)[None]
        server = len(self.data)
        with watch.on("server"):
            job = Job("request", server, number, (0,))
            return self._pool.run([job], start, start.expand(server + 1, -1)).updates[0].clone()

    def _upload(self, client: int, row: Tensor, done: Performed | None = None, extra: int = 0) -> Upload:
        claim = self.experiment.attack.claim if client in self.malicious else None
        told = done.extra if done else (0.0,) * extra  # an attacker that did not train has nothing to tell
        attack = self.experiment.adversary if client in self.malicious else None
        update = row if attack is None else attack.wire(row)
        return Upload(client, update, claim or len(self.data.train[client]), torch.tensor(told))

    def _evaluate(self, performed: Mapping[int, Performed], number: int, watch: Stopwatch) -> Accuracy:
        """Return the accuracy of all benign clients, in the round or out of it.

        Those outside the round are given the model they would have received; whoever lacks one of the
        two models (removed, or not trained yet) is tested with the other.
        """
        outside = [k for k in range(len(self.data)) if k not in performed and k not in self.malicious]
        found = dict(performed)
        if outside:
            present = [k for k in outside if k not in self.server.removed]
            requests, faults = self._requests(present, number, watch, "evaluate")
            served = [k for k in present if k not in faults]
            dispatch = self.server.dispatch(served, requests)
            rows = dict(zip(served, dispatch.rows.tolist(), strict=True))
            jobs = [
                Job("evaluate", k, number, tuple(rows.get(k, ())), True, self._holds_personal(k))
                for k in outside
            ]
            with watch.on("evaluate"):
                outcome = self._pool.run(jobs, dispatch.models, self.personal)
            found.update(zip(outside, outcome.performed, strict=True))
        return measure_accuracy(
            {k: done for k, done in found.items() if k not in self.malicious},
            [len(samples) for samples in self.data.test],
            self.method.shares,
        )

    def _holds_personal(self, client: int) -> bool:
        """Whether a client has a model of its own: one it trained, or, sharing nothing, the common start."""
        return bool(self.has_trained[client]) or not self.method.shares

    def _bytes(self, dispatch: Dispatch, asked: int, extra: int) -> int:
        """Count what went over the wire: models down, updates up, and the same for requests."""
        if not self.method.shares:
            return 0
        vectors = dispatch.rows.numel() + len(dispatch.ids) + 2 * asked
        numbers = vectors * self.layout.size + len(dispatch.ids) * extra
        return numbers * torch.float32.itemsize


def run(
    experiment: Experiment,
    out: Path | str | None = None,
    pool: Pool | None = None,
    observers: Sequence[Observer] = (),
) -> Result:
    """Run an experiment to its end, from wherever its directory says it stands."""
    from fedcap.simulation.directory import RunDirectory, examine

    if out is not None and (known := examine(Path(out), experiment)) is not None:
        return known
    if pool is None:
        with make_pool(experiment.workers, experiment.device) as own:
            return run(experiment, out, own, observers)
    with single_thread():  # the server's sums too: bits do not depend on how many cores there are
        simulation = Simulation(experiment, pool)
        if out is None:
            return _play(simulation, observers)
        with RunDirectory(Path(out), experiment) as directory:
            return _play(simulation, [directory, *observers])


def _play(simulation: Simulation, observers: Sequence[Observer]) -> Result:
    for observer in observers:
        observer.started(simulation)
    while not simulation.finished:
        record = simulation.play()
        for observer in observers:
            observer.round_done(simulation, record)
    result = simulation.result()
    for observer in observers:
        observer.finished(result)
    return result
