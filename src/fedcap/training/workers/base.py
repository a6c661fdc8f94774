"""What every crew offers: opened with a bench and the clients' samples, it does batches of jobs.

What can be carried to a worker process: what pickles, and is made of what the worker can import.

The named tensors that a client keeps, as one row of a matrix.

Many clients' tensors are then one matrix, J×P, which can lie in shared memory: a row is a client, and its
first P numbers are the tensors one after the other.

A crew of one: does the jobs in this process, one after the other.

What crews have in common whose jobs are done in other processes, here or elsewhere.
"""

from __future__ import annotations

import io
import logging
import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
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
from fedcap.training.task import Bench, Job, LocalData, Performed, Work, shapes


class WorkerError(RunError):
    """A job failed, or its workers keep dying; the cause has the traceback."""


@dataclass(frozen=True)
class Outcome:
    """What a batch of J jobs made, in the order of the jobs. The tensors are valid until the next batch."""

    updates: Tensor
    """J×D; the row of a job that makes no update is zeros."""
    keeps: list[Tensors]
    """What each job's client keeps; for a job that does not train, the same tensors as before."""
    performed: list[Performed]


class Crew(ABC):
    """Does jobs for the clients of one bench at a time."""

    @abstractmethod
    def open(self, bench: Bench, data: Mapping[str, LocalData]) -> None:
        """Get ready for these clients, each with its samples; those of an earlier bench are forgotten."""

    @abstractmethod
    def run(self, jobs: Sequence[Job], models: Tensor, keeps: Sequence[Tensors]) -> Outcome:
        """Do the jobs.

        `models` is R×D, and a job's `rows` say which of them its client receives. `keeps[j]` is what the
        client of job j keeps; names and shapes are the same for all jobs of the batch.
        """

    def close(self) -> None:  # noqa: B027 - nothing to close unless there are workers
        """Stop the workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute on one thread, so that results do not depend on how many cores there are.

    Matrix products are those of `fast_products`.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with fast_products():
            yield
    finally:
        torch.set_num_threads(threads)


def explain(error: Exception) -> str:
    """Return what went wrong, in a line; some errors say it all."""
    if isinstance(error, InputError | ModelError):
        return str(error)
    return f"{type(error).__name__}: {error}"


ADVICE = "to use several workers, put it into a module of its own"


class NotPortableError(Exception):
    """Something cannot go to another process; the message says what and why."""


class _Carrier(pickle.Pickler):
    """A pickler that refuses classes and functions of modules that a worker could not import."""

    def persistent_id(self, thing: Any) -> None:
        """Look at each thing before it is pickled."""
        module = getattr(thing, "__module__", None) if callable(thing) else None
        if isinstance(module, str) and hasattr(thing, "__qualname__") and not importable(module):
            raise NotPortableError(
                f"{thing.__qualname__} is defined in {module}, where worker processes cannot find it"
            )


def carried(thing: Any) -> bytes:
    """Return a thing as bytes for a worker process; raise `NotPortableError` if it could not read them."""
    there = io.BytesIO()
    try:
        _Carrier(there).dump(thing)
    except NotPortableError:
        raise
    except Exception as error:  # what pickling raises depends on what is pickled
        said = " ".join(str(error).split())
        raise NotPortableError(
            f"the method or the model cannot be sent to worker processes ({said})"
        ) from error
    return there.getvalue()


def portable(bench: Bench) -> bytes | None:
    """Return a bench as bytes for worker processes; if it cannot go there, log why and return none."""
    try:
        return carried(replace(bench))  # a copy, which has no networks yet
    except NotPortableError as reason:
        logging.getLogger("fedcap").warning(
            "%s: training in this process instead, one client at a time; %s", reason, ADVICE
        )
        return None


@dataclass(frozen=True)
class Packing:
    """Which tensors lie in a row, in order: their names and shapes."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, keeps: Sequence[Tensors]) -> Packing:
        """Return the packing for clients that all keep tensors of the same names and shapes."""
        expected = shapes(keeps[0]) if keeps else {}
        for kept in keeps:
            if shapes(kept) != expected:
                raise ValueError(f"clients should all keep {expected} (got {shapes(kept)})")
        return cls(tuple(expected), tuple(expected.values()))

    @property
    def size(self) -> int:
        """How many numbers a row holds, P."""
        return sum(math.prod(shape) for shape in self.shapes)

    def unpack(self, row: Tensor) -> dict[str, Tensor]:
        """Return the tensors of a row, as views of it."""
        tensors, start = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            stop = start + math.prod(shape)
            tensors[name] = row[start:stop].view(shape)
            start = stop
        return tensors

    def pack(self, kept: Tensors, row: Tensor) -> None:
        """Copy the tensors into a row."""
        for name, place in self.unpack(row).items():
            place.copy_(kept[name])

    def store(self, work: Work, update: Tensor, kept: Tensor) -> None:
        """Copy what a job made into its two rows; if it made no update, that row is set to zeros."""
        if work.update is None:
            update.zero_()
        else:
            update.copy_(work.update)
        if work.kept is not None:
            self.pack(work.kept, kept)

    def keeps(self, jobs: Sequence[Job], before: Sequence[Tensors], rows: Tensor) -> list[Tensors]:
        """Return what each job's client keeps: its row if it has trained, what it kept before otherwise."""
        return [
            self.unpack(row) if job.kind == "train" else kept
            for job, kept, row in zip(jobs, before, rows, strict=True)
        ]


class SoloCrew(Crew):
    """Does the jobs in this process, in order."""

    _bench: Bench | None = None
    _data: Mapping[str, LocalData]

    def open(self, bench: Bench, data: Mapping[str, LocalData]) -> None:
        """Take a bench and its clients."""
        self._bench, self._data = bench, data

    def run(self, jobs: Sequence[Job], models: Tensor, keeps: Sequence[Tensors]) -> Outcome:
        """Do the jobs in order."""
        if self._bench is None:
            raise WorkerError("the crew has no bench: open it first")
        packing = Packing.of(keeps)
        updates = models.new_empty(len(jobs), self._bench.size)
        kept_rows = models.new_empty(len(jobs), packing.size)
        performed = []
        with PROCESS_WIDE, single_thread():
            for job, kept, update, kept_row in zip(jobs, keeps, updates, kept_rows, strict=True):
                try:
                    received = models[list(job.rows)]
                    work = self._bench.perform(job, self._data[job.client], received, kept)
                except Exception as error:
                    raise WorkerError(f"client {job.client}: {explain(error)}") from error
                packing.store(work, update, kept_row)
                performed.append(work.performed)
        return Outcome(updates, packing.keeps(jobs, keeps, kept_rows), performed)


DEATHS_FORGIVEN = 2
"""A job that has killed more workers than this is given up."""


class RemoteCrew(Crew):
    """Sends the bench to its workers; with one that cannot go there, does the jobs in this process."""

    def __init__(self) -> None:
        self._alone: SoloCrew | None = None
        """Does the jobs of a bench that cannot go to the workers."""

    def open(self, bench: Bench, data: Mapping[str, LocalData]) -> None:
        """Get the workers ready for these clients, never more workers than clients."""
        self._alone = None
        carried = portable(bench)
        if carried is None:
            self._alone = SoloCrew()
            self._alone.open(bench, data)
        else:
            self._send(carried, bench.size, data)

    def run(self, jobs: Sequence[Job], models: Tensor, keeps: Sequence[Tensors]) -> Outcome:
        """Do the jobs, each on the next worker that is free; if one fails, stop all workers."""
        if self._alone is not None:
            return self._alone.run(jobs, models, keeps)
        try:
            return self._run(jobs, models, keeps)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _send(self, bench: bytes, size: int, data: Mapping[str, LocalData]) -> None:
        """Send the workers a bench, whose models have so many weights, and the clients' samples."""

    @abstractmethod
    def _run(self, jobs: Sequence[Job], models: Tensor, keeps: Sequence[Tensors]) -> Outcome:
        """Do the jobs on the workers."""
