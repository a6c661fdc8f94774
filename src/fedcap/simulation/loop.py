"""The clients of a simulation: their data, what they keep, and the crew that does their work.

Those who watch a run from outside: progress, the directory that keeps it, trackers.

The one round loop: select, dispatch, train, attack, evaluate, close, record.

It drives any method through its `Server`, and knows which clients are malicious only to let them attack and
to leave them out of the accuracy.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from fedcap import models
from fedcap.data import FederatedData
from fedcap.rng import derived_seed
from fedcap.runs import Mixing, Realised, Result, RoundRecord, finite, mass_removal, recorded, summarise
from fedcap.server.server import Offer, Opening, Server, Serving
from fedcap.server.uploads import Upload
from fedcap.simulation.adversary import Adversary, Stopwatch, measure_accuracy, tally
from fedcap.simulation.inputs import scaling_tensors
from fedcap.simulation.settings import Setup
from fedcap.simulation.store import ClientStore, MemoryStore
from fedcap.state import Tensors, owned, under
from fedcap.training import Bench, Crew, Job, LocalData, Performed, fresh_network


class Clients:
    """Everybody's samples on a crew, and everybody's kept tensors in a store."""

    def __init__(
        self,
        data: FederatedData,
        adversary: Adversary,
        bench: Bench,
        crew: Crew,
        store: ClientStore,
        first_kept: Tensors,
        shares: bool,
    ) -> None:
        self._adversary = adversary
        self._bench = bench
        self._crew = crew
        self._store = store
        self._first_kept = first_kept
        """What a client keeps before it ever trained."""
        self._shares = shares
        crew.open(
            bench,
            {
                client: LocalData(
                    adversary.training_data(client, train, data.classes).to(bench.device),
                    test.to(bench.device),
                )
                for client, train, test in zip(data.names, data.train, data.test, strict=True)
            },
        )

    def requests(self, asked: Sequence[str], start: Tensor, number: int) -> Tensor:
        """Return the updates by which newcomers ask for their first model, a row each."""
        jobs = [Job("request", client, number, (0,)) for client in self._who_trains(asked)]
        outcome = self._crew.run(jobs, start[None], self._keeps(jobs))
        return self._rows(asked, jobs, outcome.updates)

    def train(
        self, serving: Serving, evaluate: bool, watch: Stopwatch, measure: bool = False
    ) -> tuple[Tensor, dict[str, Performed]]:
        """Let the participants train; return the honest updates, N×D, and what each job found."""
        dispatch = serving.dispatch
        received = dict(zip(serving.clients, dispatch.rows.tolist(), strict=True))
        jobs = [
            Job(
                "train",
                client,
                serving.round,
                tuple(received[client]),
                evaluate and client not in self._adversary,
                measure=measure,
            )
            for client in self._who_trains(serving.clients)
        ]
        if not jobs:
            return dispatch.models.new_zeros(0, self._bench.size), {}
        began = time.perf_counter()
        outcome = self._crew.run(jobs, dispatch.models, self._keeps(jobs))
        for job, kept in zip(jobs, outcome.keeps, strict=True):
            self._store.put(job.client, kept)
        rows = self._rows(serving.clients, jobs, outcome.updates)
        took = time.perf_counter() - began
        training = sum(done.seconds_training for done in outcome.performed)
        evaluating = sum(done.seconds_evaluating for done in outcome.performed)
        watch.add("train", took * training / (training + evaluating))
        watch.add("evaluate", took * evaluating / (training + evaluating))
        return rows, dict(zip((job.client for job in jobs), outcome.performed, strict=True))

    def test(
        self, clients: Sequence[str], offer: Offer, number: int, measure: bool = False
    ) -> dict[str, Performed]:
        """Test clients outside the round: on the model each would be sent, if served, and on its own.

        A client has its own model if it has trained. If nothing is shared, it starts with the common weights.
        """
        rows = dict(zip(offer.clients, offer.dispatch.rows.tolist(), strict=True))
        jobs = [
            Job(
                "evaluate",
                client,
                number,
                tuple(rows.get(client, ())),
                evaluate=True,
                holds_personal=not self._shares or self._store.get(client) is not None,
                measure=measure,
            )
            for client in clients
        ]
        outcome = self._crew.run(jobs, offer.dispatch.models, self._keeps(jobs))
        return dict(zip(clients, outcome.performed, strict=True))

    def _who_trains(self, clients: Sequence[str]) -> list[str]:
        """Return the clients that train; attackers do not if the attack does not use their honest updates."""
        benign = [client for client in clients if client not in self._adversary]
        return benign if self._adversary.idle and benign else list(clients)

    def _keeps(self, jobs: Sequence[Job]) -> list[Tensors]:
        return [self._store.get(job.client) or self._first_kept for job in jobs]

    def _rows(self, clients: Sequence[str], jobs: Sequence[Job], updates: Tensor) -> Tensor:
        """Return a row per client: the update of its job, or zeros if it had none."""
        place = {client: row for row, client in enumerate(clients)}
        rows = updates.new_zeros(len(clients), self._bench.size)
        rows[[place[job.client] for job in jobs]] = updates
        return rows


class Observer(Protocol):
    """Watches a run from outside: progress, records, trackers."""

    def started(self, simulation: Simulation) -> None:
        """Be told that the run (re)starts."""

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Be told of each round."""

    def finished(self, result: Result) -> None:
        """Be told the result."""


class Simulation:
    """The state of a simulated federation between two rounds; `play` plays the next round."""

    def __init__(self, experiment: Setup, crew: Crew) -> None:
        self.experiment = experiment
        self.method = experiment.trainer
        self.data = experiment.load_data()
        self.names = self.data.names
        """The clients' identities, in the order of the data."""
        self.history: list[RoundRecord] = []
        self.mixing: Mixing | None = None
        """Who was mixed from whom in the last round, if models were."""
        device = experiment.device
        build = models.builder(experiment.network, self.data.shape, self.data.classes)
        called = models.label(experiment.network)
        network = fresh_network(build, derived_seed(experiment.seed, "weights"), device, called)
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
        # Where nothing is shared there is nothing to attack; who is malicious is left out all the same.
        attack = experiment.adversary if self.method.shares else None
        self.adversary = Adversary(attack, experiment.attackers(self.names), experiment.seed)
        self.store = MemoryStore(device)
        self._trained_on = dict(zip(self.names, map(len, self.data.train), strict=True))
        self._tested_on = dict(zip(self.names, map(len, self.data.test), strict=True))
        self._bench = Bench(
            build,
            self.method,
            experiment.training,
            experiment.seed,
            self.layout.size,
            device,
            called,
            self.data.classes,
        )
        self._clients = Clients(
            self.data,
            self.adversary,
            self._bench,
            crew,
            self.store,
            self.method.first_kept(network),
            self.method.shares,
        )

    @property
    def malicious(self) -> frozenset[str]:
        """Who is malicious."""
        return self.adversary.clients

    @property
    def round(self) -> int:
        """How many rounds have been played."""
        return len(self.history)

    @property
    def finished(self) -> bool:
        """Whether all rounds have been played, or nobody is left to play them."""
        evaluated = bool(self.history) and self.history[-1].accuracy is not None
        return self.round >= self.experiment.rounds or (self.deserted and evaluated)

    @property
    def deserted(self) -> bool:
        """Whether everybody was removed; no more is then played than a round to be evaluated."""
        return all(client in self.server.removed for client in self.names)

    def result(self) -> Result:
        """Return the result of the run."""
        return summarise(self.history, self.names, self.malicious, self.method.detects)

    def tensors(self) -> dict[str, Tensor]:
        """Return all that must outlive the process: the server's, the clients' and the attack's.

        The means and deviations by which inputs were standardised are for those who use the models.
        """
        return {
            **under("server", self.server.tensors()),
            **under("clients", self.store.tensors()),
            **under("attack", self.adversary.tensors()),
            **under("scaling", scaling_tensors(self.data)),
        }

    def restore(self, tensors: Tensors) -> None:
        """Go back to what `tensors` returned."""
        self.server.restore(owned("server", tensors))
        self.store.restore(owned("clients", tensors))
        self.adversary.restore(owned("attack", tensors))

    def play(self) -> RoundRecord:
        """Play the next round."""
        watch = Stopwatch()
        number = self.round + 1
        last = number == self.experiment.rounds or self.deserted
        evaluate = last or number % self.experiment.eval_every == 0
        with watch.on("server"):
            opening = self.server.open(self.server.select(self.names, self.experiment.participation))
        requests = self._requests(opening.asked, opening.start, number, watch)
        with watch.on("server"):
            serving = self.server.serve(requests)
        last = number == self.experiment.rounds
        updates, performed = self._clients.train(serving, evaluate, watch, measure=last)
        with watch.on("server"):
            root = self._root_update(serving)
        sent, realised = self._attack(serving, updates, performed, root, watch)
        tested = self._tested(performed, number, watch, measure=last) if evaluate else None
        with watch.on("server"):
            uploads = self._uploads(serving, sent, performed)
            closing = self.server.close(uploads, root)
        record = RoundRecord(
            round=number,
            participants=list(serving.clients),
            asked=list(opening.asked),
            accuracy=None
            if tested is None
            else measure_accuracy(tested, self._tested_on, self.method.shares),
            scores=finite(dict(closing.scores)),
            limits=finite(dict(closing.limits)),
            weights_entropy=serving.mixing_entropy,
            refused={**closing.refused, **serving.offer.refused},
            bounded=dict(closing.bounded),
            samples=dict(closing.samples),
            removed=recorded(closing.removed),
            suspected=recorded(closing.suspected),
            attack=realised,
            diverged=[k for k, done in performed.items() if not done.finite and k not in self.malicious],
            bytes=self._bytes(opening, serving),
            seconds=watch.seconds(),
            notes=[*closing.notes, *(f"{client}: {why}" for client, why in closing.ignored)],
            tallies=tally(tested, self.data.class_names, self.method.shares) if tested and last else None,
        )
        crowd = mass_removal(record)
        if crowd is not None:
            record = replace(record, notes=[*record.notes, crowd])
            if not any(map(mass_removal, self.history)):
                logging.getLogger("fedcap").warning(crowd)
        self.history.append(record)
        self.mixing = Mixing.of(number, serving.clients, serving.pool, serving.dispatch.mixing)
        return record

    def _requests(
        self, asked: Sequence[str], start: Tensor | None, number: int, watch: Stopwatch, part: str = "train"
    ) -> list[Upload]:
        """Have newcomers send an update to compare them by; malicious ones poison theirs."""
        if not asked or start is None:
            return []
        with watch.on(part):
            honest = self._clients.requests(asked, start, number)
        with watch.on("attack"):
            everybody = torch.zeros(len(asked), 1, dtype=torch.long)
            sent, _ = self.adversary.strike(asked, honest, start[None], everybody, self.server, request=True)
        return [self._upload(k, number, row) for k, row in zip(asked, sent, strict=True)]

    def _attack(
        self,
        serving: Serving,
        updates: Tensor,
        performed: dict[str, Performed],
        root: Tensor | None,
        watch: Stopwatch,
    ) -> tuple[Tensor, Realised | None]:
        """Return the rows as sent, and what the attack came to."""
        with watch.on("attack"):
            return self.adversary.strike(
                serving.clients,
                updates,
                serving.dispatch.models,
                serving.dispatch.rows,
                self.server,
                uploads=lambda rows: self._uploads(serving, rows, performed),
                root=root,
            )

    def _uploads(self, serving: Serving, sent: Tensor, performed: dict[str, Performed]) -> list[Upload]:
        """Return what the participants send; an attacker that did not train sends zeros as extra numbers."""
        if not self.method.shares:
            return []
        nothing = (0.0,) * serving.extra
        return [
            self._upload(k, serving.round, row, performed[k].extra if k in performed else nothing)
            for k, row in zip(serving.clients, sent, strict=True)
        ]

    def _upload(self, client: str, number: int, row: Tensor, extra: Sequence[float] = ()) -> Upload:
        samples = self.adversary.claim(client, self._trained_on[client])
        return Upload(client, number, self.adversary.on_the_wire(client, row), samples, torch.tensor(extra))

    def _root_update(self, serving: Serving) -> Tensor | None:
        """Train the server's own update on its root set, if it has one."""
        if self.data.root is None or serving.root_start is None:
            return None
        samples = self.data.root.to(self.experiment.device)
        return self._bench.root_update(samples, serving.round, serving.root_start)

    def _tested(
        self, performed: dict[str, Performed], number: int, watch: Stopwatch, measure: bool
    ) -> dict[str, Performed]:
        """Return what tests of all benign clients found, whether they take part in the round or not.

        Those outside the round are given the model they would have received; whoever lacks one of the
        two models (removed, or not trained yet) is tested with the other.
        """
        benign = [k for k in self.names if k not in self.malicious]
        found = dict(performed)
        outside = [k for k in benign if k not in found]
        if outside:
            asked = self.server.asks([k for k in outside if k not in self.server.removed])
            requests = self._requests(asked, self.server.request_start, number, watch, "evaluate")
            with watch.on("evaluate"):
                offer = self.server.models_for(outside, requests)
                found |= self._clients.test(outside, offer, number, measure)
        return {k: found[k] for k in benign}

    def _bytes(self, opening: Opening, serving: Serving) -> int:
        """Count what went over the wire: models down, updates up, and the same for requests."""
        if not self.method.shares:
            return 0
        clients = len(serving.clients)
        vectors = serving.dispatch.rows.numel() + clients + 2 * len(opening.asked)
        numbers = vectors * self.layout.size + clients * serving.extra
        return numbers * torch.float32.itemsize
