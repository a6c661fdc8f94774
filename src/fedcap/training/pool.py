"""Many clients' jobs on the cores at hand: in this process, or in resident workers of one thread each.

Both pools run the same `Bench.perform` with one thread, so a result has the same bits whichever did it.
The workers are started once and serve run after run; weights go through shared memory, only job
descriptions through the pipe. A worker that dies is replaced and its job done again.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Self

import torch
from torch import Tensor

from fedcap.registry import InputError
from fedcap.training.bench import Bench, Job, Performed
from fedcap.training.messages import Buffers, Failure, Opening, Order, Packed, explain
from fedcap.training.network import PROCESS_WIDE
from fedcap.training.sharing import Memory

DEATHS_FORGIVEN = 2
"""A job that has killed this many workers gets no third one."""


class WorkerError(RuntimeError):
    """A job failed, or its workers keep dying; the cause has where."""


@dataclass(frozen=True)
class Outcome:
    """What a batch of jobs brought, a row per job; the matrices are valid until the next batch."""

    updates: Tensor
    kept: Tensor
    performed: list[Performed]


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute with one thread, so that results do not depend on how many cores there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Pool(ABC):
    """Runs jobs for the clients of one bench at a time."""

    @abstractmethod
    def open(self, bench: Bench) -> None:
        """Get ready for the clients of a bench."""

    @abstractmethod
    def run(self, jobs: Sequence[Job], models: Tensor, personal: Tensor) -> Outcome:
        """Do the jobs; `models` is R×D, `personal` has a row for every client there is."""

    def close(self) -> None:  # noqa: B027 - nothing to close unless there are workers
        """Stop the workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SerialPool(Pool):
    """Does the jobs in this process, one after the other."""

    _bench: Bench

    def open(self, bench: Bench) -> None:
        """Get ready for the clients of a bench."""
        self._bench = bench

    def run(self, jobs: Sequence[Job], models: Tensor, personal: Tensor) -> Outcome:
        """Do the jobs in order."""
        updates = models.new_zeros(len(jobs), self._bench.size)
        kept = personal.new_zeros(len(jobs), personal.shape[1])
        performed = []
        with PROCESS_WIDE, single_thread():
            for job, update, keep in zip(jobs, updates, kept, strict=True):
                try:
                    done = self._bench.perform(job, models, personal[job.client], update, keep)
                except Exception as error:
                    raise WorkerError(f"client {job.client}: {explain(error)}") from error
                performed.append(done)
        return Outcome(updates, kept, performed)


class Worker:
    """A process of its own and the pipe to it. Whoever closes the pipe ends the process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # Modules are found where this process finds them, and not first in the directory it stands in.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "fedcap.training.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what a user's own code prints must not get between our own output
                env={**os.environ, **threads, "PYTHONPATH": path},
            )
        self.pipe = Connection(ours.detach())
        self.order: Order | None = None

    def stop(self) -> int:
        """End the process, whatever it is doing; return how it ended."""
        self.pipe.close()
        self.process.kill()
        return self.process.wait()


class WorkerPool(Pool):
    """Does the jobs in resident worker processes, each with one thread."""

    def __init__(self, workers: int) -> None:
        self._memory = Memory()
        self._batch_memory = Memory()
        self._opening: Opening | None = None
        self._buffers: Buffers | None = None
        self._tensors: tuple[Tensor, ...] = ()
        self._size = 0
        self._count = workers
        self._workers: list[Worker] = []

    def open(self, bench: Bench) -> None:
        """Send the bench to every worker; its samples go into shared memory once."""
        self._memory.close()
        self._batch_memory.close()
        self._memory, self._buffers = Memory(), None
        self._size = bench.size
        if not self._workers:
            self._workers = [Worker() for _ in range(self._count)]
        self._opening = Opening(
            pickle.dumps(replace(bench, train=(), test=())),
            Packed.pack(bench.train, self._memory),
            Packed.pack(bench.test, self._memory),
            sys.path,
        )
        for worker in self._workers:
            self._send(worker, self._opening)

    def _send(self, worker: Worker, message: Opening | Buffers | Order) -> None:
        with suppress(BrokenPipeError, ConnectionError):  # a dead worker is seen when it is read from
            worker.pipe.send(message)

    def _reserve(self, models: Tensor, personal: Tensor, jobs: int) -> None:
        """Have shared matrices with room for a batch; the workers learn of them when they change."""
        if self._tensors and self._buffers is not None:
            room, kept_room = self._tensors[0], self._tensors[3]
            if (
                len(room) >= len(models)
                and room.shape[1] == models.shape[1]
                and len(kept_room) >= jobs
                and kept_room.shape[1] == personal.shape[1]
            ):
                return
        self._batch_memory.close()
        self._batch_memory = Memory()
        made = [
            self._batch_memory.empty(shape, torch.float32)
            for shape in (
                (max(1, len(models)), models.shape[1]),
                (jobs, personal.shape[1]),
                (jobs, self._size),
                (jobs, personal.shape[1]),
            )
        ]
        self._buffers = Buffers(*(handle for handle, _ in made))
        self._tensors = tuple(tensor for _, tensor in made)
        for worker in self._workers:
            self._send(worker, self._buffers)

    def run(self, jobs: Sequence[Job], models: Tensor, personal: Tensor) -> Outcome:
        """Do the jobs, each on the next worker that is free; if that fails, stop all of them."""
        try:
            return self._run(jobs, models, personal)
        except BaseException:
            self.close()
            raise

    def _run(self, jobs: Sequence[Job], models: Tensor, personal: Tensor) -> Outcome:
        if not self._workers:
            raise WorkerError("the pool has no workers: open it first")
        self._reserve(models, personal, len(jobs))
        shared_models, shared_personal, updates, kept = self._tensors
        shared_models[: len(models)] = models
        for row, job in enumerate(jobs):
            shared_personal[row] = personal[job.client]
        performed: list[Performed | None] = [None] * len(jobs)
        waiting = deque(Order(row, job) for row, job in enumerate(jobs))
        deaths = [0] * len(jobs)
        for worker in self._workers:
            self._give(worker, waiting)
        while any(worker.order for worker in self._workers):
            busy = {worker.pipe: worker for worker in self._workers if worker.order}
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                order = worker.order
                assert order is not None
                worker.order = None
                try:
                    answer = worker.pipe.recv()
                except (EOFError, ConnectionError):
                    deaths[order.row] += 1
                    if deaths[order.row] > DEATHS_FORGIVEN:
                        raise WorkerError(
                            f"client {order.job.client}: {deaths[order.row]} workers died, the last with exit"
                            f" code {worker.stop()}; --workers 1 trains without them"
                        ) from None
                    waiting.appendleft(order)
                    worker = self._replace(worker)
                else:
                    if isinstance(answer, Failure):
                        where = RuntimeError(answer.where)
                        raise WorkerError(f"client {order.job.client}: {answer.reason}") from where
                    performed[order.row] = answer
                self._give(worker, waiting)
        count = len(jobs)
        return Outcome(updates[:count], kept[:count], [done for done in performed if done])

    def _give(self, worker: Worker, waiting: deque[Order]) -> None:
        if waiting:
            worker.order = waiting.popleft()
            self._send(worker, worker.order)

    def _replace(self, dead: Worker) -> Worker:
        dead.stop()
        worker = Worker()
        self._workers[self._workers.index(dead)] = worker
        for message in (self._opening, self._buffers):
            if message is not None:
                self._send(worker, message)
        return worker

    def close(self) -> None:
        """Stop the workers and give the shared memory back."""
        for worker in self._workers:
            worker.stop()
        self._workers = []
        self._tensors = ()
        self._memory.close()
        self._batch_memory.close()


def make_pool(workers: int | None = None, device: str = "cpu") -> Pool:
    """Return a pool of that many workers (default: one per core); other devices take clients in turn."""
    if workers is None:
        workers = available_cores()
    if workers < 1:
        raise InputError(f"workers should be greater than or equal to 1 (got {workers})")
    shared = workers > 1 and device == "cpu" and hasattr(os, "memfd_create")
    return WorkerPool(workers) if shared else SerialPool()


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
