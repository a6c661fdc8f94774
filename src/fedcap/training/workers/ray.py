"""A pool of Ray actors, each with one core and one thread, on the nodes of a cluster.

The cluster is joined, or started on this machine; Ray is imported only when it is used. Every node needs
fedcap, and the modules that a run names, in the same versions. The data set and its partition are put into
Ray's object store once and travel to each node once; all actors of a node map them, and make the samples of a
client when a task needs them. Each model of a batch is put there once, too, and travels to a node when a task
there needs it. An actor whose node dies is replaced, and its task is run again.
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
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from fedcap.errors import InputError
from fedcap.training.task import LocalData, Task, TaskResult, TaskRunner
from fedcap.training.workers.base import (
    MAX_DEATHS,
    LoadState,
    NotPortableError,
    RemotePool,
    StoreState,
    TaskResults,
    WorkerError,
    task_error,
)
from fedcap.training.workers.shared_memory import pack, unpack

LOG = logging.getLogger("fedcap")
QUIET = ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO")
"""Switched off unless the user has set them: usage statistics, and a warning about a later version of Ray."""
CONNECT_TIMEOUT = 5.0
"""Seconds in which the head of a cluster must answer."""
WAIT = 30.0
"""Seconds without an answer after which the log says what is waited for."""

Array = np.ndarray[Any, Any]
Answer = tuple[TaskResult, Array | None, Mapping[str, Array] | None] | WorkerError
"""The result of a task, its update, and the client's new state if the task trains."""


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
    """A connection to a Ray cluster.

    `address` is that of the cluster's head, `HOST:PORT`, or "auto" for the cluster of this machine. Without
    an address, a cluster with this machine's cores is started, and ended when the connection is closed. If
    the program is connected to a cluster already, that connection is used, and stays open.
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
            _check_address(address)
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
        """Return the number of cores of all nodes."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here."""
        if self._ours and self.ray.is_initialized():
            self.ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_address(address: str | None) -> None:
    """Raise an error if no host answers at `HOST:PORT`: Ray itself would try for many minutes."""
    host, _, port = (address or "").rpartition(":")
    if address in (None, "auto", "local") or "://" in host:
        return
    if not host or not port.isdecimal():
        raise ValueError("an address is HOST:PORT, or auto")
    socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT).close()


class RayActor:
    """The runner and the samples of all clients on a node. Models come with each task."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")

    def open(self, runner: bytes, content: bytes, tensors: Array, path: Sequence[str]) -> WorkerError | None:
        """Load a runner and packed samples, whose modules may also be on the given path."""
        sys.path += [entry for entry in path if entry not in sys.path]
        try:
            self._runner: TaskRunner = pickle.loads(runner)
            self._data: Sequence[LocalData] = unpack(content, torch.from_numpy(tensors))
        except Exception as error:
            hint = "the modules that the run names must be there on every node of the cluster"
            return WorkerError(f"a node cannot load the experiment ({error}): {hint}")
        return None

    def run(self, task: Task, own: Mapping[str, Array], *models: Array) -> Answer:
        """Run a task."""
        try:
            received = torch.from_numpy(np.stack(models)) if models else torch.empty(0, self._runner.size)
            before = {name: torch.tensor(array) for name, array in own.items()}
            result = self._runner.run(task, self._data[task.row], received, before)
            update = None if result.update is None else result.update.detach().numpy()
            state = result.state
            after = None if state is None else {name: part.detach().numpy() for name, part in state.items()}
        except Exception as error:
            failure = task_error(task, error)
            failure.add_note(traceback.format_exc())
            return failure
        return result.without_tensors(), update, after


class RayPool(RemotePool):
    """Runs the tasks on Ray actors: as many as asked for, or as the cluster has cores."""

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        self._cluster = RayCluster(address)
        self._ray = self._cluster.ray
        self._count = workers
        self._actors: list[Any] = []
        self._pending: dict[Any, tuple[Any, int | None]] = {}
        """By Ray's reference to an answer: the actor, and the place of its task (None while it loads)."""
        self._opening: list[Any] = []
        """Ray's references to the runner and to the two parts of the packed samples."""
        self._size = 0

    def _open(self, runner: bytes, size: int, data: Sequence[LocalData]) -> None:
        """Put runner and samples into the object store, and let every actor load them."""
        self._opening, self._size = [self._ray.put(part) for part in (runner, *_packed(data))], size
        self._pending.clear()
        wanted = min(self._count or max(1, self._cluster.cores()), len(data))
        while len(self._actors) > wanted:
            self._ray.kill(self._actors.pop())
        for actor in self._actors:
            self._load(actor)
        while len(self._actors) < wanted:
            self._actors.append(self._new_actor())

    def _new_actor(self) -> Any:
        """Start an actor on a node that has a free core."""
        actor = self._ray.remote(num_cpus=1)(RayActor).remote()
        self._load(actor)
        return actor

    def _load(self, actor: Any) -> None:
        """Let an actor load runner and samples; it is free for tasks once it has answered."""
        self._pending[actor.open.remote(*self._opening, sys.path)] = actor, None

    def _run(
        self,
        tasks: Sequence[Task],
        models: Tensor,
        load: LoadState,
        rows: Sequence[int],
        count: int,
        store: StoreState,
    ) -> TaskResults:
        if not self._actors:
            raise WorkerError("the worker pool has no workers: open it first")
        stored = [self._ray.put(model) for model in models.numpy()]
        updates = torch.zeros(count, self._size)
        waiting, results = deque(range(len(tasks))), dict[int, TaskResult]()
        deaths = Counter[int | None]()
        while len(results) < len(tasks):
            for actor in self._free():
                if waiting:
                    place = waiting.popleft()
                    task = tasks[place]
                    state = {name: tensor.numpy() for name, tensor in load(place).items()}
                    received = [stored[row] for row in task.models]
                    answer = actor.run.remote(task, state, *received)
                    self._pending[answer] = actor, place
            for reference in self._wait():
                actor, done = self._pending.pop(reference)
                try:
                    answer = self._get(reference)
                except self._ray.exceptions.RayError:
                    deaths[done] += 1
                    self._replace(actor, None if done is None else tasks[done], deaths[done])
                    waiting.extendleft([] if done is None else [done])
                    continue
                if done is None:
                    continue
                results[done], update, after = answer
                if update is not None:
                    updates[rows[done]] = torch.tensor(update)
                if after is not None:
                    store(done, {name: torch.tensor(array) for name, array in after.items()})
        return TaskResults(updates, [results[place] for place in range(len(tasks))])

    def _free(self) -> list[Any]:
        """Return the actors that neither run a task nor load the runner."""
        busy = [actor for actor, _ in self._pending.values()]
        return [actor for actor in self._actors if actor not in busy]

    def _wait(self) -> list[Any]:
        """Wait until an actor has answered or died; return the references to what is there."""
        while True:
            ready, _ = self._ray.wait(list(self._pending), timeout=WAIT)
            if ready:
                return list(ready)
            if all(place is None for _, place in self._pending.values()):
                LOG.warning("waiting for a free core in the Ray cluster (it has %d)", self._cluster.cores())

    def _get(self, reference: Any) -> Any:
        """Return an answer; raise `WorkerError` if the task failed, and Ray's error if the actor died."""
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # the actor could not read what it was sent
            raise WorkerError(" ".join(str(error.cause or error).split())) from error
        if isinstance(answer, WorkerError):
            raise answer
        return answer

    def _replace(self, dead: Any, task: Task | None, deaths: int) -> None:
        """Start a new actor in place of one that died; raise if too many died during the same task."""
        if deaths > MAX_DEATHS * (len(self._actors) if task is None else 1):
            client = "" if task is None else f"client {task.client}: "
            raise WorkerError(f"{client}{deaths} workers died, or their nodes did")
        self._ray.kill(dead)
        self._actors[self._actors.index(dead)] = self._new_actor()

    def close(self) -> None:
        """End the actors, and leave the cluster."""
        if self._ray.is_initialized():
            for actor in self._actors:
                self._ray.kill(actor)
        self._actors, self._pending, self._opening = [], {}, []
        self._cluster.close()


def _packed(data: Sequence[LocalData]) -> tuple[bytes, Array]:
    """Return the data in a form that actors can open: samples as such, if they cannot make them."""
    try:
        return pack(data)
    except NotPortableError:
        return pack(list(data))
