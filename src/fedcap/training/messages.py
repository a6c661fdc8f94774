"""What goes through the pipe between a pool and its workers, and the shared memory it speaks of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.samples import Samples
from fedcap.training.bench import Job
from fedcap.training.sharing import Memory, SharedTensor


@dataclass(frozen=True)
class Packed:
    """Every client's samples in two shared tensors; client k has `sizes[k]` of them, in order."""

    x: SharedTensor
    y: SharedTensor
    sizes: tuple[int, ...]

    @classmethod
    def pack(cls, clients: Sequence[Samples], memory: Memory) -> Packed:
        """Copy the samples into shared memory, once for all workers."""
        first = clients[0]
        sizes = tuple(len(samples) for samples in clients)
        x, _ = memory.empty((sum(sizes), *_channels_last(first.x).shape[1:]), first.x.dtype)
        y, _ = memory.empty((sum(sizes),), first.y.dtype)
        packed = cls(x, y, sizes)
        for samples, place in zip(clients, packed.unpack(), strict=True):
            place.x.copy_(samples.x)
            place.y.copy_(samples.y)
        return packed

    def unpack(self) -> list[Samples]:
        """Return the clients' samples as views of the shared memory."""
        x = torch.split(_channels_first(self.x.open()), [*self.sizes])
        y = torch.split(self.y.open(), [*self.sizes])
        return [Samples(*part) for part in zip(x, y, strict=True)]


def _channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1) if x.ndim == 4 else x


def _channels_first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2) if x.ndim == 4 else x


@dataclass(frozen=True)
class Opening:
    """To a worker: the bench, without samples, and where those are."""

    bench: bytes
    train: Packed
    test: Packed
    path: list[str]


@dataclass(frozen=True)
class Buffers:
    """To a worker: the shared matrices of the next batches of jobs."""

    models: SharedTensor
    personal: SharedTensor
    updates: SharedTensor
    kept: SharedTensor

    def open(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Map the four matrices into this process."""
        return self.models.open(), self.personal.open(), self.updates.open(), self.kept.open()


@dataclass(frozen=True)
class Order:
    """To a worker: do this job, with this row of the matrices."""

    row: int
    job: Job


@dataclass(frozen=True)
class Failure:
    """From a worker: why a job failed, and where."""

    reason: str
    where: str = ""


def explain(error: Exception) -> str:
    """Return what went wrong, in a line."""
    return f"{type(error).__name__}: {error}"
