"""What every crew offers: opened with a bench and the clients' samples, it does batches of jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedcap.errors import InputError, RunError
from fedcap.products import fast_products
from fedcap.state import Tensors
from fedcap.training.bench import Bench, Job, Performed
from fedcap.training.client import LocalData
from fedcap.training.network import ModelError


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
