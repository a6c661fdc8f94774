"""What all worker pools share: the interface, the pool without workers, and how a runner gets to a worker.

A pool is opened with a runner (what is fixed over a run) and the samples of all clients. It then runs
batches of tasks. Every task runs on one thread, and its result depends only on its arguments; so neither the
pool nor the order in which tasks finish changes a bit.
"""

from __future__ import annotations

import io
import logging
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from fedcap.errors import InputError, RunError
from fedcap.fingerprint import importable
from fedcap.products import fast_products
from fedcap.state import Tensors
from fedcap.training.network import PROCESS_WIDE, ModelError
from fedcap.training.task import LocalData, Task, TaskResult, TaskRunner

MAX_DEATHS = 2
"""A task during which more workers than this have died is not tried again."""

LoadState = Callable[[int], Tensors]
"""Takes the place of a task in its batch; returns the client's state before it."""
StoreState = Callable[[int, Tensors], None]
"""Takes the place of a task in its batch, and the client's state after it."""


class WorkerError(RunError):
    """A task failed, or its workers died; the cause or the notes have the traceback."""


@dataclass(frozen=True)
class TaskResults:
    """The results of a batch of tasks."""

    updates: Tensor
    """count×D: the update of task j is in row `rows[j]`, rows without an update are zeros.

    The caller may write into it. It is valid until the pool trains, opens or closes the next time. If all
    tasks are "evaluate", it has no rows.
    """
    results: list[TaskResult]
    """In the order of the tasks."""


class WorkerPool(ABC):
    """Runs tasks for the clients of one runner at a time."""

    _fallback: InProcessPool | None = None
    """Runs the tasks instead, if the runner cannot be sent to the workers."""

    @abstractmethod
    def open(self, runner: TaskRunner, data: Sequence[LocalData]) -> None:
        """Prepare for this runner and these clients' samples, in place of earlier ones.

        A task's `row` is the place of its client in `data`. A client's samples are read for each of its
        tasks, so `data` may make them when they are read.
        """

    def run(
        self,
        tasks: Sequence[Task],
        models: Tensor,
        load: LoadState,
        rows: Sequence[int] | None = None,
        count: int | None = None,
        store: StoreState = lambda place, state: None,
    ) -> TaskResults:
        """Run the tasks, each on the next worker that is free; if one fails, stop all workers.

        `models` is R×D; a task's `models` are the rows that its client receives. `load(j)` returns the client
        state before task j; it is called when the task begins, so that one state at a time takes memory. Its
        update goes to row `rows[j]` (by default j) of a matrix of `count` rows (by
        default one per task). `store(j, state)` is called once for each task that trains, in the order in
        which tasks finish; the tensors are valid only during the call.
        """
        rows = range(len(tasks)) if rows is None else rows
        if tasks and all(task.kind == "evaluate" for task in tasks):
            count = 0
        elif count is None:
            count = len(tasks)
        try:
            return (self._fallback or self)._run(tasks, models, load, rows, count, store)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _run(
        self,
        tasks: Sequence[Task],
        models: Tensor,
        load: LoadState,
        rows: Sequence[int],
        count: int,
        store: StoreState,
    ) -> TaskResults:
        """Run the tasks, as `run` says."""

    def close(self) -> None:  # noqa: B027 - a pool without workers has nothing to stop
        """Stop the workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute on one thread, so that results do not depend on the number of cores.

    Matrix products are those of `fast_products`.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with fast_products():
            yield
    finally:
        torch.set_num_threads(threads)


def task_error(task: Task, error: Exception) -> WorkerError:
    """Return the error, in one line, with which a pool reports that a task has raised another one."""
    known = isinstance(error, InputError | ModelError | WorkerError)
    return WorkerError(f"client {task.client}: {error if known else f'{type(error).__name__}: {error}'}")


class InProcessPool(WorkerPool):
    """Runs the tasks in this process, one after the other."""

    def __init__(self) -> None:
        self._runner: TaskRunner | None = None
        self._data: Sequence[LocalData] = ()

    def open(self, runner: TaskRunner, data: Sequence[LocalData]) -> None:
        """Take a runner and its clients' samples."""
        self._runner, self._data = runner, data

    def _run(
        self,
        tasks: Sequence[Task],
        models: Tensor,
        load: LoadState,
        rows: Sequence[int],
        count: int,
        store: StoreState,
    ) -> TaskResults:
        if self._runner is None:
            raise WorkerError("the worker pool has no runner: open it first")
        updates = models.new_zeros(count, self._runner.size)
        results = []
        with PROCESS_WIDE, single_thread():
            for place, task in enumerate(tasks):
                own = load(place)
                try:
                    received = models[list(task.models)]
                    result = self._runner.run(task, self._data[task.row], received, own)
                except Exception as error:
                    raise task_error(task, error) from error
                if result.update is not None:
                    updates[rows[place]] = result.update
                if result.state is not None:
                    # A copy, since it may share memory with the state before, which `store` may overwrite.
                    store(place, {name: tensor.clone() for name, tensor in result.state.items()})
                results.append(result.without_tensors())
        return TaskResults(updates, results)


class RemotePool(WorkerPool):
    """Sends the runner to workers in other processes; if that is impossible, it is used in this process."""

    def open(self, runner: TaskRunner, data: Sequence[LocalData]) -> None:
        """Prepare the workers: at most one per client."""
        self._fallback = None
        pickled = _pickled_runner(runner)
        if pickled is None:
            self._fallback = InProcessPool()
            self._fallback.open(runner, data)
        else:
            self._open(pickled, runner.size, data)

    @abstractmethod
    def _open(self, runner: bytes, size: int, data: Sequence[LocalData]) -> None:
        """Send a pickled runner, whose models have `size` weights, and the samples."""


class NotPortableError(Exception):
    """Something cannot be sent to another process; the message says what and why."""


class CheckingPickler(pickle.Pickler):
    """A pickler that refuses classes and functions of modules that a worker could not import."""

    def persistent_id(self, thing: Any) -> Any:
        """Check each object before it is pickled; return None, for "pickle it"."""
        module = getattr(thing, "__module__", None) if callable(thing) else None
        if isinstance(module, str) and hasattr(thing, "__qualname__") and not importable(module):
            raise NotPortableError(
                f"{thing.__qualname__} is defined in {module}, where worker processes cannot find it"
            )
        return None


def carried(thing: Any, pickler: Callable[[io.BytesIO], CheckingPickler] = CheckingPickler) -> bytes:
    """Return an object pickled for a worker process; raise `NotPortableError` if none could load it."""
    buffer = io.BytesIO()
    try:
        pickler(buffer).dump(thing)
    except NotPortableError:
        raise
    except Exception as error:  # the type of the error depends on what is pickled
        reason = " ".join(str(error).split())
        raise NotPortableError(
            f"the method or the model cannot be sent to worker processes ({reason})"
        ) from error
    return buffer.getvalue()


def _pickled_runner(runner: TaskRunner) -> bytes | None:
    """Return a runner pickled for worker processes; if that is impossible, log why and return None."""
    try:
        return carried(replace(runner))  # a copy, which has no networks yet
    except NotPortableError as reason:
        logging.getLogger("fedcap").warning(
            "%s: training in this process instead, one client at a time;"
            " to use several workers, put it into a module of its own",
            reason,
        )
        return None
