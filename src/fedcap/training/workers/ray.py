"""A Ray cluster, joined or started on this machine; Ray is imported only when it is asked for.

Every node needs fedcap, and the modules and data that a run names, in the same versions.

A crew of Ray actors, each with one core and one thread, on the nodes of a cluster.

A client's samples, and each model of a batch, are put into Ray's object store once, and travel to a node when
a job there needs them. An actor whose node dies is replaced, and its job is done again: a job depends on
nothing that an actor remembers.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import sys
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedcap.errors import InputError
from fedcap.state import Samples, Tensors
from fedcap.training.task import Bench, Job, LocalData, Performed
from fedcap.training.workers.base import DEATHS_FORGIVEN, Outcome, Packing, RemoteCrew, WorkerError, explain
from fedcap.training.workers.shared_memory import Failure, channels_first, channels_last

QUIET = ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO")
"""What Ray does not do unless the user says so: tell its makers of its use, and warn of its own future."""

KNOCK = 5.0
"""Seconds in which the head of a cluster must answer."""


def ray_module() -> Any:
    """Return the module `ray`, or say what to install."""
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError(
            "the engine ray needs Ray: pip install 'fedcap[ray]'", code="needs-extra", field="ray"
        ) from None
    return ray


class RayCluster:
    """A connection to a Ray cluster, for as long as it is open.

    `address` is that of the cluster's head, `HOST:PORT`, or "auto" for the one of this machine. Without one,
    a cluster of this machine's cores is started, and ended with the connection. A connection that the
    program has made already is used, and left as it is.
    """

    def __init__(self, address: str | None = None) -> None:
        self.ray = ray_module()
        self._ours = not self.ray.is_initialized()
        if not self._ours:
            return
        for name in QUIET:
            os.environ.setdefault(name, "0")
        own = {"include_dashboard": False} if address is None else {}
        try:
            _knock(address)
            self.ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **own)
        except (OSError, RuntimeError, ValueError) as error:
            said = " ".join(str(error).split()).rstrip(".")
            raise InputError(
                f"no Ray cluster at {address or 'this machine'} ({said}):"
                " start one with ray start --head, and give the address that it prints",
                code="no-cluster",
                field="address",
            ) from None

    def cores(self) -> int:
        """Return how many cores the cluster's nodes have together."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here."""
        if self._ours and self.ray.is_initialized():
            self.ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _knock(address: str | None) -> None:
    """Raise an error if nobody answers at `HOST:PORT`: Ray itself would try for many minutes."""
    host, _, port = (address or "").rpartition(":")
    if address in (None, "auto", "local") or "://" in host:
        return
    if not host or not port.isdecimal():
        raise ValueError("an address is HOST:PORT, or auto")
    socket.create_connection((host, int(port)), timeout=KNOCK).close()


LOG = logging.getLogger("fedcap")
PATIENCE = 30.0
"""Seconds without an answer after which it is said what is waited for."""

Array = np.ndarray[Any, Any]
Answer = tuple[Any, Array | None, Array | None]
"""What a job found (`Performed`, or a `Failure`), its update, and what its client keeps."""


class Desk:
    """What an actor has: a bench, and the samples of clients that it has worked for."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")

    def open(self, bench: bytes, samples: Mapping[str, Any], path: Sequence[str]) -> Answer:
        """Take a bench, references to each client's samples, and where to look for modules, too."""
        sys.path += [entry for entry in path if entry not in sys.path]
        self._samples, self._data = samples, dict[str, LocalData]()
        try:
            self._bench: Bench = pickle.loads(bench)
        except Exception as error:
            hint = "the modules that the run names must be there on every node of the cluster"
            return Failure(f"a node cannot load the experiment ({error}): {hint}"), None, None
        return Performed(), None, None

    def perform(self, job: Job, packing: Packing, kept: Array, *models: Array) -> Answer:
        """Do one job; return what it found, and the update and what the client keeps if it made them."""
        try:
            rows = [torch.from_numpy(row) for row in models]
            received = torch.stack(rows) if rows else torch.empty(0, self._bench.size)
            before = packing.unpack(torch.tensor(kept))
            work = self._bench.perform(job, self._local(job.client), received, before)
            update, after = torch.empty(self._bench.size), torch.empty(packing.size)
            packing.store(work, update, after)
        except Exception as error:
            return Failure(explain(error), traceback.format_exc()), None, None
        made = None if work.update is None else update.numpy()
        return work.performed, made, None if work.kept is None else after.numpy()

    def _local(self, client: str) -> LocalData:
        """Return a client's samples, which are fetched once and lie in the node's object store."""
        if client not in self._data:
            import ray

            train_x, train_y, test_x, test_y = map(torch.from_numpy, ray.get(self._samples[client]))
            train, test = Samples(channels_first(train_x), train_y), Samples(channels_first(test_x), test_y)
            self._data[client] = LocalData(train, test)
        return self._data[client]


@dataclass(eq=False)
class Hand:
    """An actor, and the answer that is awaited of it."""

    actor: Any
    awaited: Any = None
    """Ray's reference to the answer; none if it is free."""
    row: int | None = None
    """The row of the job it does; none while it takes its bench."""


class RayCrew(RemoteCrew):
    """Does the jobs on Ray actors of one core each: as many as asked for, or as the cluster has cores."""

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        super().__init__()
        self._cluster = RayCluster(address)
        self._ray = self._cluster.ray
        self._count = workers
        self._hands: list[Hand] = []
        self._opening: tuple[Any, ...] | None = None
        self._size = 0

    def _send(self, bench: bytes, size: int, data: Mapping[str, LocalData]) -> None:
        """Put bench and samples into the object store, and tell every actor."""
        samples = {client: self._ray.put(_arrays(local)) for client, local in data.items()}
        self._opening, self._size = (self._ray.put(bench), samples, sys.path), size
        wanted = min(self._count or max(1, self._cluster.cores()), len(data))
        self._stop(self._hands[wanted:])
        self._hands = [self._told(hand) for hand in self._hands[:wanted]]
        while len(self._hands) < wanted:
            self._hands.append(self._new())

    def _new(self) -> Hand:
        """Start an actor on whichever node has a free core."""
        return self._told(Hand(self._ray.remote(num_cpus=1)(Desk).remote()))

    def _told(self, hand: Hand) -> Hand:
        """Give an actor the bench; it is free for jobs once it has answered."""
        assert self._opening is not None
        hand.awaited, hand.row = hand.actor.open.remote(*self._opening), None
        return hand

    def _run(self, jobs: Sequence[Job], models: Tensor, keeps: Sequence[Tensors]) -> Outcome:
        if not self._hands:
            raise WorkerError("the crew has no workers: open it first")
        packing = Packing.of(keeps)
        rows = [self._ray.put(row) for row in models.numpy()]
        orders = []
        for job, kept in zip(jobs, keeps, strict=True):
            packed = torch.empty(packing.size)
            packing.pack(kept, packed)
            orders.append((job, packing, packed.numpy(), *(rows[place] for place in job.rows)))
        updates, after = torch.zeros(len(jobs), self._size), torch.zeros(len(jobs), packing.size)
        performed = []
        for row, (found, update, kept_row) in enumerate(self._perform(orders)):
            performed.append(found)
            if update is not None:
                updates[row] = torch.from_numpy(update.copy())
            if kept_row is not None:
                after[row] = torch.from_numpy(kept_row.copy())
        return Outcome(updates, packing.keeps(jobs, keeps, after), performed)

    def _perform(self, orders: Sequence[tuple[Any, ...]]) -> list[Answer]:
        """Give each actor that is free the next order, until all are done."""
        waiting, answers, deaths = deque(range(len(orders))), dict[int, Answer](), Counter[int | None]()
        while len(answers) < len(orders):
            for hand in self._hands:
                if hand.awaited is None and waiting:
                    hand.row = waiting.popleft()
                    hand.awaited = hand.actor.perform.remote(*orders[hand.row])
            for hand in self._answered():
                row, answer = hand.row, self._answer(hand)
                whose = "" if row is None else f"client {orders[row][0].client}: "
                if answer is None:
                    deaths[row] += 1
                    self._replace(hand, whose, deaths[row])
                    waiting.extendleft([] if row is None else [row])
                elif isinstance(answer, Failure):
                    raise WorkerError(whose + answer.reason) from RuntimeError(answer.where)
                elif row is not None:
                    answers[row] = answer
        return [answers[row] for row in range(len(orders))]

    def _answered(self) -> list[Hand]:
        """Return actors that have answered, or died; wait until there is one."""
        while True:
            busy = {hand.awaited: hand for hand in self._hands if hand.awaited is not None}
            ready, _ = self._ray.wait(list(busy), timeout=PATIENCE)
            if ready:
                return [busy[reference] for reference in ready]
            if not any(hand.row is not None for hand in self._hands):
                LOG.warning("waiting for a free core in the Ray cluster (it has %d)", self._cluster.cores())

    def _answer(self, hand: Hand) -> Answer | Failure | None:
        """Return what an actor answered, and set it free; none if it died."""
        awaited, hand.row, hand.awaited = hand.awaited, None, None
        try:
            answer = self._ray.get(awaited)
        except self._ray.exceptions.RayTaskError as error:  # it could not even read what it was sent
            return Failure(" ".join(str(error.cause or error).split()))
        except self._ray.exceptions.RayError:
            return None
        return answer[0] if isinstance(answer[0], Failure) else answer

    def _replace(self, dead: Hand, whose: str, deaths: int) -> None:
        """Put a new actor in the place of one that died; raise if too many died of the same."""
        if deaths > DEATHS_FORGIVEN * (1 if whose else len(self._hands)):
            raise WorkerError(f"{whose}{deaths} workers died, or their nodes did")
        self._stop([dead])
        self._hands[self._hands.index(dead)] = self._new()

    def _stop(self, hands: Sequence[Hand]) -> None:
        for hand in hands:
            self._ray.kill(hand.actor)

    def close(self) -> None:
        """End the actors, and leave the cluster."""
        if self._ray.is_initialized():
            self._stop(self._hands)
        self._hands, self._opening = [], None
        self._cluster.close()


def _arrays(local: LocalData) -> tuple[Array, ...]:
    """Return a client's samples as arrays; images have their channels last, as networks take them."""
    parts = (channels_last(local.train.x), local.train.y, channels_last(local.test.x), local.test.y)
    return tuple(part.numpy() for part in parts)
