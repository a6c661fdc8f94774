"""Tensors that several processes can map, in memory files without a name.

The kernel frees the memory once its descriptor is closed and no process maps it, even if they were killed.

What goes through the pipe between a crew and its workers, and the shared memory that it points to.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedcap.state import Samples
from fedcap.training.task import Job, LocalData
from fedcap.training.workers.base import Packing


@dataclass(frozen=True)
class SharedTensor:
    """Where this process or another finds a shared tensor; it pickles to a few bytes."""

    path: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    def open(self) -> Tensor:
        """Map the tensor into this process."""
        count = math.prod(self.shape)
        if count == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        return torch.from_file(self.path, shared=True, size=count, dtype=self.dtype).view(self.shape)


class Memory:
    """Owns shared tensors; after `close` their memory is freed once no process maps it."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        self._finalise = weakref.finalize(self, _close_all, self._descriptors)

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[SharedTensor, Tensor]:
        """Allocate a tensor; other processes can open it until this memory is closed."""
        descriptor = os.memfd_create("fedcap")
        self._descriptors.append(descriptor)
        os.truncate(descriptor, max(1, math.prod(shape) * dtype.itemsize))
        handle = SharedTensor(f"/proc/{os.getpid()}/fd/{descriptor}", tuple(shape), dtype)
        return handle, handle.open()

    def close(self) -> None:
        """Give the memory back."""
        self._finalise()


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


@dataclass(frozen=True)
class Packed:
    """Every client's samples in two shared tensors, one client after the other."""

    x: SharedTensor
    y: SharedTensor
    sizes: dict[str, int]
    """How many samples each client has, in the order in which they lie."""

    @classmethod
    def pack(cls, clients: Mapping[str, Samples], memory: Memory) -> Packed:
        """Copy the samples into shared memory, once for all workers."""
        first = next(iter(clients.values()))
        sizes = {client: len(samples) for client, samples in clients.items()}
        total = sum(sizes.values())
        x, _ = memory.empty((total, *channels_last(first.x).shape[1:]), first.x.dtype)
        y, _ = memory.empty((total,), first.y.dtype)
        packed = cls(x, y, sizes)
        for client, place in packed.unpack().items():
            place.x.copy_(clients[client].x)
            place.y.copy_(clients[client].y)
        return packed

    def unpack(self) -> dict[str, Samples]:
        """Return the clients' samples as views of the shared memory."""
        sizes = [*self.sizes.values()]
        x, y = torch.split(channels_first(self.x.open()), sizes), torch.split(self.y.open(), sizes)
        return {client: Samples(*part) for client, *part in zip(self.sizes, x, y, strict=True)}


def channels_last(x: Tensor) -> Tensor:
    """Return images, n×C×H×W, as n×H×W×C; other inputs as they are."""
    return x.permute(0, 2, 3, 1) if x.ndim == 4 else x


def channels_first(x: Tensor) -> Tensor:
    """Undo `channels_last`."""
    return x.permute(0, 3, 1, 2) if x.ndim == 4 else x


@dataclass(frozen=True)
class Opening:
    """To a worker: the pickled bench, where the clients' samples are, and where to import modules from."""

    bench: bytes
    train: Packed
    test: Packed
    path: list[str]

    @classmethod
    def of(cls, bench: bytes, data: Mapping[str, LocalData], memory: Memory, path: list[str]) -> Opening:
        """Return the message, with the samples copied into shared memory."""
        train = Packed.pack({client: local.train for client, local in data.items()}, memory)
        test = Packed.pack({client: local.test for client, local in data.items()}, memory)
        return cls(bench, train, test, path)

    def data(self) -> dict[str, LocalData]:
        """Return every client's samples, as views of the shared memory."""
        train, test = self.train.unpack(), self.test.unpack()
        return {client: LocalData(train[client], test[client]) for client in train}


class Matrices(NamedTuple):
    """The matrices of a batch of jobs; all but the models have a row per job."""

    models: Tensor
    """R×D."""
    before: Tensor
    """J×P: what each client keeps before its job, packed."""
    updates: Tensor
    """J×D."""
    after: Tensor
    """J×P: what each client keeps after its job. `before` is not overwritten, so a job can be done again."""


@dataclass(frozen=True)
class Buffers:
    """To a worker: where the matrices of the next batches are."""

    models: SharedTensor
    before: SharedTensor
    updates: SharedTensor
    after: SharedTensor

    def open(self) -> Matrices:
        """Map the matrices into this process."""
        return Matrices(self.models.open(), self.before.open(), self.updates.open(), self.after.open())


@dataclass(frozen=True)
class Order:
    """To a worker: do this job with this row of the matrices; `packing` says what is where in the row."""

    row: int
    job: Job
    packing: Packing


@dataclass(frozen=True)
class Failure:
    """From a worker: why a job failed, and the traceback."""

    reason: str
    where: str = ""
