"""Processes of ours: a Python process that runs one of our modules, with a pipe to it.

Noticing workers that somebody has stopped (SIGSTOP, a debugger's "kill -STOP", a batch system).

A stopped process is told from a slow one by its state, as the kernel shows it: a worker that computes, waits
for a disk or for a core is never taken for a stopped one, however long that lasts.

A crew of worker processes, each with one thread.

The workers are started once and serve run after run. Samples and weights go through shared memory, and only
descriptions of jobs through the pipes. A worker that dies, or is stopped for long, is replaced, and its job
is done again.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedcap.state import Tensors
from fedcap.training.task import Bench, Job, LocalData, Performed
from fedcap.training.workers.base import DEATHS_FORGIVEN, Outcome, Packing, RemoteCrew, WorkerError
from fedcap.training.workers.shared_memory import Buffers, Failure, Matrices, Memory, Opening, Order


class Child:
    """A process of one thread that runs a module, and the pipe to it. Closing the pipe ends the process.

    The module is given the number of the pipe's descriptor. Ctrl-C does not reach the process.
    """

    def __init__(self, module: str) -> None:
        ours, theirs = socket.socketpair()
        # Modules are found where this process finds them, and not first in the current directory.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with theirs, _interrupts_held_back():
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # stderr: what a user's code prints must not mix with our output
                env={**os.environ, **threads, "PYTHONPATH": path},
            )
        self.pipe = Connection(ours.detach())

    def send(self, message: Any) -> None:
        """Send a message; a dead process is noticed only when its answer is read."""
        with suppress(ConnectionError):
            self.pipe.send(message)

    def stop(self) -> int:
        """End the process, whatever it is doing; return its exit code."""
        self.pipe.close()
        self.process.kill()
        return self.process.wait()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block Ctrl-C (SIGINT); a process started meanwhile inherits the block, so it is never interrupted."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


PATIENCE = 30.0
"""Seconds for which a worker may be stopped before it is replaced."""
LOOKS = 10
"""How often it must be seen stopped in that time. Looks that are missed since this process is stopped too, as
after Ctrl-Z, do not count."""


class Watch:
    """Looks at processes every so often, and remembers how many looks in a row each has been stopped for."""

    def __init__(self) -> None:
        self.patience = PATIENCE
        self._every = PATIENCE / LOOKS
        self._next = time.monotonic() + self._every
        self._seen: dict[int, int] = {}

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self._next - time.monotonic())

    def stopped(self, processes: Iterable[int]) -> set[int]:
        """Return which of the processes, given by their ids, have been stopped for too long."""
        if time.monotonic() < self._next:
            return set()
        self._next = time.monotonic() + self._every
        self._seen = {
            process: self._seen.get(process, 0) + 1 for process in processes if _is_stopped(process)
        }
        return {process for process, looks in self._seen.items() if looks > LOOKS}


def _is_stopped(process: int) -> bool:
    """Whether a process is stopped by a signal; one that is gone, or held by a debugger, is not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state == "T"


class Worker(Child):
    """A process that does jobs, one after the other."""

    def __init__(self) -> None:
        super().__init__("fedcap.training.workers.worker")
        self.order: Order | None = None
        """The job that it is doing."""


class ProcessCrew(RemoteCrew):
    """Does the jobs in worker processes, each with one thread."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        self._count = workers
        self._workers: list[Worker] = []
        self._sample_memory = Memory()
        self._batch_memory = Memory()
        self._opening: Opening | None = None
        self._buffers: Buffers | None = None
        self._matrices: Matrices | None = None
        self._size = 0

    def open(self, bench: Bench, data: Mapping[str, LocalData]) -> None:
        """Free the memory of an earlier bench, and get ready for this one."""
        self._release()
        super().open(bench, data)

    def _send(self, bench: bytes, size: int, data: Mapping[str, LocalData]) -> None:
        """Send the bench to every worker; all samples are copied into shared memory, once."""
        self._sample_memory, self._size = Memory(), size
        while len(self._workers) < min(self._count, len(data)):
            self._workers.append(Worker())
        self._opening = Opening.of(bench, data, self._sample_memory, sys.path)
        for worker in self._workers:
            worker.send(self._opening)

    def _run(self, jobs: Sequence[Job], models: Tensor, keeps: Sequence[Tensors]) -> Outcome:
        if not self._workers:
            raise WorkerError("the crew has no workers: open it first")
        packing = Packing.of(keeps)
        matrices = self._reserve(len(models), len(jobs), packing.size)
        matrices.models[: len(models)] = models
        count = len(jobs)
        for kept, row in zip(keeps, matrices.before[:count], strict=True):
            packing.pack(kept, row)
        performed = self._perform([Order(row, job, packing) for row, job in enumerate(jobs)])
        after = packing.keeps(jobs, keeps, matrices.after[:count])
        return Outcome(matrices.updates[:count], after, performed)

    def _reserve(self, models: int, jobs: int, width: int) -> Matrices:
        """Return shared matrices with room for a batch; workers are sent the handles of new ones."""
        old = self._matrices
        there = (1, 0, 0) if old is None else (len(old.models), *old.after.shape)
        models, jobs, width = (max(pair) for pair in zip((models, jobs, width), there, strict=True))
        if old is not None and (models, jobs, width) == there:
            return old
        self._batch_memory.close()
        self._batch_memory = Memory()
        shapes = (models, self._size), (jobs, width), (jobs, self._size), (jobs, width)
        handles, tensors = zip(*(self._batch_memory.empty(s, torch.float32) for s in shapes), strict=True)
        self._buffers, self._matrices = Buffers(*handles), Matrices(*tensors)
        for worker in self._workers:
            worker.send(self._buffers)
        return self._matrices

    def _perform(self, orders: Sequence[Order]) -> list[Performed]:
        """Give each worker an order, and the next one whenever it has answered, until all are done."""
        waiting, answers = deque(orders), dict[int, Performed]()
        deaths, watch = [0] * len(orders), Watch()
        for worker in self._workers:
            self._give(worker, waiting)
        while busy := {worker.pipe: worker for worker in self._workers if worker.order}:
            self._end_stopped(watch, busy.values())
            for pipe in wait(list(busy), watch.pause):
                worker = busy[pipe]  # type: ignore[index]
                order, worker.order = worker.order, None
                assert order is not None
                try:
                    answers[order.row] = _answer(worker, order)
                except (EOFError, ConnectionError):
                    deaths[order.row] += 1
                    worker = self._replace(worker, order, deaths[order.row])
                    waiting.appendleft(order)
                self._give(worker, waiting)
        return [answers[order.row] for order in orders]

    def _end_stopped(self, watch: Watch, workers: Iterable[Worker]) -> None:
        """End workers that have been stopped for long; they are then replaced as any that died."""
        stopped = watch.stopped(worker.process.pid for worker in workers)
        for process in stopped:
            logging.getLogger("fedcap").warning(
                "worker process %d was stopped for %g s: replaced, its job is done again",
                process,
                watch.patience,
            )
        for worker in workers:
            if worker.process.pid in stopped:
                worker.process.kill()

    def _give(self, worker: Worker, waiting: deque[Order]) -> None:
        if waiting:
            worker.order = waiting.popleft()
            worker.send(worker.order)

    def _replace(self, dead: Worker, order: Order, deaths: int) -> Worker:
        """Return a new worker in place of one that died during an order; raise if too many died of it."""
        code = dead.stop()
        if deaths > DEATHS_FORGIVEN:
            raise WorkerError(
                f"client {order.job.client}: {deaths} workers died, the last with exit code {code};"
                " one worker trains without processes",
                code="worker-died",
            ) from None
        worker = Worker()
        self._workers[self._workers.index(dead)] = worker
        for message in (self._opening, self._buffers):
            if message is not None:
                worker.send(message)
        return worker

    def close(self) -> None:
        """Stop the workers and free the shared memory."""
        for worker in self._workers:
            worker.stop()
        self._workers = []
        self._release()

    def _release(self) -> None:
        self._buffers = self._matrices = None
        self._sample_memory.close()
        self._batch_memory.close()


def _answer(worker: Worker, order: Order) -> Performed:
    """Return what a worker found; raise `WorkerError` if its job failed."""
    answer: Performed | Failure = worker.pipe.recv()
    if isinstance(answer, Failure):
        raise WorkerError(f"client {order.job.client}: {answer.reason}") from RuntimeError(answer.where)
    return answer
