"""The one round loop: select, dispatch, train, attack, admit, aggregate, evaluate, record.

It drives any method by the steps of `methods.base`, and knows which clients are malicious only to let
them attack and to leave them out of the accuracy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from fedcap import models
from fedcap.data import FederatedData
from fedcap.methods.base import Dispatch, drop_non_finite
from fedcap.methods.intake import Upload, admit
from fedcap.randomness import derive, derived_seed
from fedcap.samples import Samples
from fedcap.simulation.experiment import Experiment
from fedcap.simulation.record import (
    Accuracy,
    ClientAccuracy,
    Realised,
    Result,
    RoundRecord,
    Seconds,
    finite,
    removals,
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


class Stopwatch:
    """Adds up seconds by part of the round."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.parts: dict[str, float] = {}

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Count what happens inside to one part."""
        began = time.perf_counter()
        yield
        self.add(part, time.perf_counter() - began)

    def add(self, part: str, seconds: float) -> None:
        """Add seconds to one part."""
        self.parts[part] = self.parts.get(part, 0.0) + seconds

    def seconds(self) -> Seconds:
        """Return the parts, and the total since the watch was started."""
        return Seconds(**self.parts, total=time.perf_counter() - self.began)


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
        self.state: Any = self.method.start(weights, self.layout)
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
                onednn=models.prefers_onednn(experiment.model_name),
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
        selected = self._select(number)
        requests, faults = self._requests(self.state, selected, number, watch)
        ids = torch.tensor([k for k in selected if k not in faults], dtype=torch.long)
        with watch.on("server"):
            dispatch = self.method.dispatch(self.state, ids, requests)
        before = self.state
        updates, performed = self._train(dispatch, number, evaluate, watch)
        sent, realised = self._attack(ids.tolist(), updates, ("attack", number), watch)
        with watch.on("server"):
            extra = max((len(done.extra) for done in performed.values()), default=0)
            admission = admit(
                [
                    self._upload(k, row, performed.get(k), extra)
                    for k, row in zip(ids.tolist(), sent, strict=True)
                ]
                if self.method.shares
                else [],
                ids.tolist(),
                self.layout.size,
                int(self.experiment.malicious * len(ids) + 1e-9),
                self.experiment.device,
                extra,
            )
            uploads = replace(admission.uploads, root=self._root_update(number))
            self.state, verdict = self.method.aggregate(before, dispatch, uploads)
        accuracy = self._evaluate(before, performed, number, watch) if evaluate else None
        benign = [done for k, done in performed.items() if k not in self.malicious]
        record = RoundRecord(
            round=number,
            participants=ids.tolist(),
            asked=sorted([*requests, *faults]),
            accuracy=accuracy,
            norms=finite(dict(verdict.norms)),
            weights_entropy=_mean_entropy(dispatch.weights),
            refused={**faults, **admission.refused, **verdict.refused},
            bounded=admission.bounded,
            removed=verdict.removed,
            attack=realised,
            diverged=not all(done.finite for done in benign),
            bytes=self._bytes(dispatch, len(requests) + len(faults), extra),
            seconds=watch.seconds(),
            notes=list(verdict.notes),
        )
        self.history.append(record)
        return record

    def _select(self, number: int) -> list[int]:
        """Draw this round's participants among those not removed."""
        gone = removals(self.history)
        there = [k for k in range(len(self.data)) if k not in gone]
        count = max(1, round(self.experiment.participation * len(self.data)))
        if count >= len(there):
            return there
        order = torch.randperm(len(there), generator=derive(self.experiment.seed, "select", number))
        return sorted(there[at] for at in order[:count].tolist())

    def _requests(
        self, state: Any, clients: Sequence[int], number: int, watch: Stopwatch, part: str = "train"
    ) -> tuple[dict[int, Tensor], dict[int, str]]:
        """Ask newcomers for an update to compare them by; malicious ones poison theirs.

        Return the requests, and what is wrong with those that cannot be used.
        """
        ids = torch.tensor(clients, dtype=torch.long)
        asked = ids[self.method.asks(state, ids)].tolist()
        if not asked:
            return {}, {}
        start = self.method.request_start(state)[None]
        jobs = [Job("request", k, number, (0,)) for k in self._who_trains(asked)]
        with watch.on(part):
            outcome = self._pool.run(jobs, start, self.personal)
        honest = self._rows(asked, jobs, outcome.updates)
        sent, _ = self._attack(asked, honest, ("attack request", number), watch)
        admission = admit(
            [self._upload(k, row) for k, row in zip(asked, sent, strict=True)],
            asked,
            self.layout.size,
            device=self.experiment.device,
        )
        uploads, not_finite = drop_non_finite(admission.uploads)
        requests = dict(zip(uploads.ids.tolist(), uploads.updates, strict=True))
        faults = {**admission.refused, **not_finite}
        return requests, {client: f"request {fault}" for client, fault in faults.items()}

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
            return sent, _realised(sent, malicious.to(sent.device))

    def _root_update(self, number: int) -> Tensor | None:
        """Train the server's own update on its root set, if it has one."""
        if not self._root:
            return None
        start = self.method.request_start(self.state)[None]
        server = len(self.data)
        outcome = self._pool.run([Job("request", server, number, (0,))], start, start.expand(server + 1, -1))
        return outcome.updates[0].clone()

    def _upload(self, client: int, row: Tensor, done: Performed | None = None, extra: int = 0) -> Upload:
        claim = self.experiment.attack.claim if client in self.malicious else None
        told = done.extra if done else (0.0,) * extra  # an attacker that did not train has nothing to tell
        return Upload(client, row, claim or len(self.data.train[client]), torch.tensor(told))

    def _evaluate(
        self, state: Any, performed: Mapping[int, Performed], number: int, watch: Stopwatch
    ) -> Accuracy:
        """Return the accuracy of all benign clients, in the round or out of it.

        Those outside the round are given the model they would have received; whoever lacks one of the
        two models (removed, or not trained yet) is tested with the other.
        """
        gone = removals(self.history)
        outside = [k for k in range(len(self.data)) if k not in performed and k not in self.malicious]
        found = dict(performed)
        if outside:
            requests, faults = self._requests(
                state, [k for k in outside if k not in gone], number, watch, "evaluate"
            )
            served = [k for k in outside if k not in gone and k not in faults]
            dispatch = self.method.dispatch(state, torch.tensor(served, dtype=torch.long), requests)
            rows = dict(zip(served, dispatch.rows.tolist(), strict=True))
            jobs = [
                Job("evaluate", k, number, tuple(rows.get(k, ())), True, bool(self.has_trained[k]))
                for k in outside
            ]
            with watch.on("evaluate"):
                outcome = self._pool.run(jobs, dispatch.models, self.personal)
            found.update(zip(outside, outcome.performed, strict=True))
        return _accuracy(
            {k: done for k, done in found.items() if k not in self.malicious},
            [len(samples) for samples in self.data.test],
            self.method.shares,
        )

    def _bytes(self, dispatch: Dispatch, asked: int, extra: int) -> int:
        """Count what went over the wire: models down, updates up, and the same for requests."""
        if not self.method.shares:
            return 0
        vectors = dispatch.rows.numel() + len(dispatch.ids) + 2 * asked
        numbers = vectors * self.layout.size + len(dispatch.ids) * extra
        return numbers * torch.float32.itemsize


def _mean_entropy(weights: Tensor | None) -> float | None:
    if weights is None or not len(weights):
        return None
    return float(torch.special.entr(weights).sum(dim=1).mean())


def _realised(sent: Tensor, malicious: Tensor) -> Realised | None:
    if bool(malicious.all()):
        return None
    rows, mean = sent[malicious], sent[~malicious].mean(dim=0)
    cosine = torch.nn.functional.cosine_similarity(rows, mean[None]).mean()
    length = torch.linalg.vector_norm(rows, dim=1).mean()
    benign = torch.linalg.vector_norm(mean)
    return Realised(*finite([float(length), float(benign), float(cosine)]))


def _accuracy(found: Mapping[int, Performed], sizes: Sequence[int], shares: bool) -> Accuracy:
    """Turn counts into percent; whoever lacks one of the two models counts with the other."""
    shared, personal = {}, {}
    for client, done in sorted(found.items()):
        counts = (done.shared_correct, done.personal_correct)
        shared[client], personal[client] = (
            next((count for count in order if count is not None), 0) for order in (counts, counts[::-1])
        )
    total = sum(sizes[client] for client in found)
    return Accuracy(
        100 * sum(shared.values()) / total if shares else None,
        100 * sum(personal.values()) / total,
        {
            client: ClientAccuracy(
                100 * shared[client] / sizes[client] if shares else None,
                100 * personal[client] / sizes[client],
            )
            for client in shared
        },
    )


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
