"""The clients of a simulation: their data, what they keep, and the crew that does their work."""

from __future__ import annotations

import time
from collections.abc import Sequence

from torch import Tensor

from fedcap.data import FederatedData
from fedcap.methods.rounds import Offer, Serving
from fedcap.simulation.adversary import Adversary
from fedcap.simulation.measures import Stopwatch
from fedcap.simulation.store import ClientStore
from fedcap.state import Tensors
from fedcap.training import Bench, Crew, Job, LocalData, Performed


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
