"""A pool of worker processes, each with one thread.

The processes are started once and serve one runner after the other. Samples, models, client states and
updates go through shared memory; only descriptions of tasks go through the pipes. A worker that dies, or
that is stopped for long (SIGSTOP, a debugger, a batch system), is replaced, and its task is run again. A
stopped process is recognised by its state in the kernel: a worker that computes, or waits for a disk or for
a core, is never taken for a stopped one.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from fedcap.training.task import LocalData, Task, TaskResult, TaskRunner
from fedcap.training.workers.base import (
    MAX_DEATHS,
    LoadState,
    NotPortableError,
    RemotePool,
    StoreState,
    TaskResults,
    WorkerError,
)
from fedcap.training.workers.shared_memory import Memory, Opening, Packed, Shared, Workspace


class Child:
    """A process of one thread that runs the function `main` of a module, and the pipe to it.

    `main` is given the number of the pipe's descriptor. Closing the pipe ends the process. Ctrl-C does not
    reach the process. It is forked where `can_fork` allows that: torch is then imported already. Elsewhere a
    new interpreter is started, which takes a second or more.
    """

    def __init__(self, module: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs, _interrupts_held_back():
            start = _Forked if can_fork() else _started
            self.process = start(module, theirs.fileno())
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


def can_fork() -> bool:
    """Return whether a fork of this process can compute.

    A thread of this process might hold a lock at that moment, which the copy would wait for without end.
    Neither does the copy of a process that uses an accelerator work.
    """
    return sys.platform == "linux" and threading.active_count() == 1 and not torch.accelerator.is_available()


def _started(module: str, descriptor: int) -> subprocess.Popen[bytes]:
    """Start a new interpreter."""
    # Modules are found where this process finds them, and not first in the current directory.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, str(descriptor)],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=2,  # stderr: what a user's code prints must not mix with our output
        env={**os.environ, **threads, "PYTHONPATH": path},
    )


class _Forked:
    """A copy of this process, with the methods of `subprocess.Popen` that are used here."""

    def __init__(self, module: str, descriptor: int) -> None:
        main = importlib.import_module(module).main
        self._code: int | None = None
        with warnings.catch_warnings():
            # Python warns of threads, also of those of OpenBLAS, which can be forked.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            _become(main, descriptor)

    def kill(self) -> None:
        """End the process, unless it has ended."""
        if self._code is None:
            os.kill(self.pid, signal.SIGKILL)  # until it is waited for, the id is not used again

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code


def _become(main: Callable[[int], None], descriptor: int) -> NoReturn:
    """Run `main` in a fork, and end it without what the copied process would do at its end.

    The copy shares nothing but standard error with the process that it was made of: no file, no lock on a
    file, no handler of signals or of the log.
    """
    code = 1
    try:
        gc.freeze()  # so that collecting garbage does not write to the shared pages
        os.closerange(3, descriptor)
        os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))
        os.dup2(2, 1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        _REPLACED.extend([sys.stdout, sys.stderr])
        sys.stdout = sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        for logger in (logging.root, *logging.root.manager.loggerDict.values()):
            if isinstance(logger, logging.Logger):
                logger.handlers.clear()
        main(descriptor)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


_REPLACED: list[Any] = []
"""The streams of the process before the fork: if they were freed, they would write what they hold back."""


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
CHECKS = 10
"""How many times in a row it must be found stopped. Checks that are missed because this process is stopped
too, as after Ctrl-Z, do not count."""


class StopDetector:
    """Checks processes at intervals, and counts how many times in a row each was found stopped."""

    def __init__(self) -> None:
        self.patience = PATIENCE
        self._interval = PATIENCE / CHECKS
        self._next = time.monotonic() + self._interval
        self._found: dict[int, int] = {}

    @property
    def pause(self) -> float:
        """Seconds until the next check."""
        return max(0.0, self._next - time.monotonic())

    def stopped(self, processes: Iterable[int]) -> set[int]:
        """Return which of the processes, given by their ids, have been stopped for too long."""
        if time.monotonic() < self._next:
            return set()
        self._next = time.monotonic() + self._interval
        self._found = {
            process: self._found.get(process, 0) + 1 for process in processes if _is_stopped(process)
        }
        return {process for process, times in self._found.items() if times > CHECKS}


def _is_stopped(process: int) -> bool:
    """Whether a process is stopped by a signal; one that is gone, or held by a debugger, is not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state == "T"


class WorkerProcess(Child):
    """A process that runs tasks, one after the other."""

    def __init__(self) -> None:
        super().__init__("fedcap.training.workers.worker")
        self.workspace = Workspace()
        self.task: int | None = None
        """The place in its batch of the task that it runs."""


class ProcessPool(RemotePool):
    """Runs the tasks in worker processes."""

    def __init__(self, workers: int) -> None:
        self._count = workers
        self._workers: list[WorkerProcess] = []
        self._samples = Memory()
        self._opening: Opening | None = None
        self._size = 0
        self._update_memory = Memory()
        self._updates: Shared | None = None

    def open(self, runner: TaskRunner, data: Sequence[LocalData]) -> None:
        """Free the memory for an earlier runner, and prepare for this one."""
        self._samples.close()
        self._free_updates()
        super().open(runner, data)

    def _open(self, runner: bytes, size: int, data: Sequence[LocalData]) -> None:
        self._samples, self._size = Memory(), size
        while len(self._workers) < min(self._count, len(data)):
            self._workers.append(WorkerProcess())
        self._opening = Opening(runner, self._packed(data), sys.path)
        for worker in self._workers:
            worker.workspace = Workspace()
            worker.send(self._opening)

    def _packed(self, data: Sequence[LocalData]) -> Packed:
        """Return the data in a form that workers can open: samples as such, if they cannot make them."""
        try:
            return Packed.of(data, self._samples)
        except NotPortableError:
            return Packed.of(list(data), self._samples)

    def _run(
        self,
        tasks: Sequence[Task],
        models: Tensor,
        load: LoadState,
        rows: Sequence[int],
        count: int,
        store: StoreState,
    ) -> TaskResults:
        if not self._workers:
            raise WorkerError("the worker pool has no workers: open it first")
        waiting, results = deque(range(len(tasks))), dict[int, TaskResult]()
        deaths, detector = Counter[int](), StopDetector()
        with self._matrix(tasks, rows, count) as (shared, updates):

            def assign(worker: WorkerProcess) -> None:
                if waiting:
                    place = worker.task = waiting.popleft()
                    task = tasks[place]
                    worker.send(worker.workspace.assign(task, models, load(place), shared, rows[place]))

            for worker in self._workers:
                assign(worker)
            while busy := {worker.pipe: worker for worker in self._workers if worker.task is not None}:
                self._end_stopped(detector, busy.values())
                for pipe in wait(list(busy), detector.pause):
                    worker = busy[pipe]  # type: ignore[index]
                    place, worker.task = worker.task, None
                    assert place is not None
                    try:
                        results[place] = _answer(worker)
                    except (EOFError, ConnectionError):
                        deaths[place] += 1
                        worker = self._replace(worker, tasks[place], deaths[place])
                        waiting.appendleft(place)
                    else:
                        if tasks[place].kind == "train":
                            store(place, worker.workspace.state())
                    assign(worker)
        return TaskResults(updates, [results[place] for place in range(len(tasks))])

    @contextmanager
    def _matrix(self, tasks: Sequence[Task], rows: Sequence[int], count: int) -> Iterator[Shared]:
        """Give the matrix of updates, with zeros in each row that no task writes.

        That of the last training is used again if it has the right shape, since new memory is slow.
        """
        shape = (count, self._size)
        if all(task.kind != "train" for task in tasks):
            with Memory() as memory:
                yield memory.zeros(shape, torch.float32)
            return
        if self._updates is None or self._updates[1].shape != shape:
            self._free_updates()
            self._updates = self._update_memory.zeros(shape, torch.float32)
        written = {row for row, task in zip(rows, tasks, strict=True) if task.kind != "evaluate"}
        self._updates[1][[row for row in range(count) if row not in written]] = 0.0
        yield self._updates

    def _free_updates(self) -> None:
        self._update_memory.close()
        self._updates, self._update_memory = None, Memory()

    def _end_stopped(self, detector: StopDetector, workers: Iterable[WorkerProcess]) -> None:
        """End workers that have been stopped for long; they are then replaced like those that died."""
        stopped = detector.stopped(worker.process.pid for worker in workers)
        for worker in workers:
            if worker.process.pid in stopped:
                logging.getLogger("fedcap").warning(
                    "worker process %d was stopped for %g s: it is replaced, and its task is run again",
                    worker.process.pid,
                    detector.patience,
                )
                worker.process.kill()

    def _replace(self, dead: WorkerProcess, task: Task, deaths: int) -> WorkerProcess:
        """Return a new worker in place of one that died during a task; raise if the task killed too many."""
        code = dead.stop()
        if deaths > MAX_DEATHS:
            raise WorkerError(
                f"client {task.client}: {deaths} workers died, the last with exit code {code};"
                " one worker trains without processes",
                code="worker-died",
            ) from None
        worker = WorkerProcess()
        self._workers[self._workers.index(dead)] = worker
        worker.send(self._opening)
        return worker

    def close(self) -> None:
        """Stop the workers and free the shared memory."""
        for worker in self._workers:
            worker.stop()
        self._workers = []
        self._samples.close()
        self._free_updates()


def _answer(worker: WorkerProcess) -> TaskResult:
    """Return the result of a worker's task; raise `WorkerError` if the task failed."""
    answer: TaskResult | WorkerError = worker.pipe.recv()
    if isinstance(answer, WorkerError):
        raise answer
    return answer
