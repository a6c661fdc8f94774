"""Tensors that several processes can map, in memory files without a name, and messages that refer to them.

The kernel frees the memory of such a file once no process has it open or mapped, even if they were killed.
The samples of all clients are copied once, for all workers. Each worker also has a small workspace: the
models that a client receives, and the client's state before and after the task.
"""

from __future__ import annotations

import itertools
import math
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedcap.state import Samples, Tensors
from fedcap.training.task import LocalData, Task

_numbers = itertools.count()


@dataclass(frozen=True)
class SharedTensor:
    """Where this process or another finds a shared tensor; it pickles to a few bytes."""

    path: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    number: int
    """Distinguishes it from earlier shared tensors of the same process, which may have had the same path."""

    @classmethod
    def of(cls, descriptor: int, shape: Sequence[int], dtype: torch.dtype) -> SharedTensor:
        """Return the handle of a tensor in a file that this process has open."""
        return cls(f"/proc/{os.getpid()}/fd/{descriptor}", tuple(shape), dtype, next(_numbers))

    def open(self) -> Tensor:
        """Map the tensor into this process."""
        count = math.prod(self.shape)
        if count == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        return torch.from_file(self.path, shared=True, size=count, dtype=self.dtype).view(self.shape)

    def write_row(self, row: int, values: Tensor) -> None:
        """Write one row of a matrix without mapping it, so that the writer holds none of its memory."""
        content = _bytes_of(values.to(self.dtype))
        with open(self.path, "r+b") as file:
            file.seek(row * len(content))
            file.write(content)


class Memory:
    """Owns shared tensors. After `close` no process can open them; where they are mapped they stay valid."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        self._finalise = weakref.finalize(self, _close_all, self._descriptors)

    def file(self) -> int:
        """Return the descriptor of a new, empty file."""
        self._descriptors.append(os.memfd_create("fedcap"))
        return self._descriptors[-1]

    def zeros(self, shape: Sequence[int], dtype: torch.dtype) -> tuple[SharedTensor, Tensor]:
        """Allocate a tensor of zeros; its pages take no memory before they are first used."""
        descriptor = self.file()
        os.truncate(descriptor, max(1, math.prod(shape) * dtype.itemsize))
        handle = SharedTensor.of(descriptor, shape, dtype)
        return handle, handle.open()

    def close(self) -> None:
        """Close the files of the tensors."""
        self._finalise()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close_all(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _bytes_of(tensor: Tensor) -> memoryview:
    """Return the content of a tensor, without a copy if it is contiguous."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().data


class _Column:
    """A shared tensor that is written part by part, along the first dimension."""

    def __init__(self, memory: Memory) -> None:
        self._descriptor = memory.file()
        self._file = open(self._descriptor, "wb", closefd=False)  # noqa: SIM115
        self._row: tuple[torch.Size, torch.dtype] | None = None
        """The shape and type of one row."""
        self.offsets = [0]
        """Where each part begins, and where the last one ends."""

    def append(self, part: Tensor) -> None:
        """Copy a part to the end of the file."""
        row = part.shape[1:], part.dtype
        self._row = self._row or row
        if row != self._row:
            raise ValueError(f"samples of all clients should be alike (got {self._row} and {row})")
        self._file.write(_bytes_of(part))
        self.offsets.append(self.offsets[-1] + len(part))

    def handle(self) -> SharedTensor:
        """Return the handle of all parts."""
        self._file.close()
        assert self._row is not None
        shape, dtype = self._row
        return SharedTensor.of(self._descriptor, (self.offsets[-1], *shape), dtype)


@dataclass(frozen=True)
class SharedData:
    """The samples of all clients in shared memory, one client after the other."""

    columns: tuple[SharedTensor, ...]
    """Training inputs and labels, test inputs and labels: see `to_tensors`."""
    offsets: SharedTensor
    """4×(K+1): in column c, client k has the rows from `offsets[c, k]` to `offsets[c, k + 1]`."""

    @classmethod
    def copy(cls, data: Sequence[LocalData], memory: Memory) -> SharedData:
        """Copy the samples of each client to shared memory."""
        columns = [_Column(memory) for _ in range(4)]
        for local in data:
            for column, part in zip(columns, to_tensors(local), strict=True):
                column.append(part)
        handle, offsets = memory.zeros((4, len(data) + 1), torch.int64)
        offsets.copy_(torch.tensor([column.offsets for column in columns]))
        return cls(tuple(column.handle() for column in columns), handle)


class MappedData:
    """The samples of all clients as a worker sees them; those of one client are views of the memory."""

    def __init__(self, shared: SharedData) -> None:
        self._columns = [column.open() for column in shared.columns]
        self._offsets = shared.offsets.open()

    def __getitem__(self, client: int) -> LocalData:
        starts, stops = self._offsets[:, client].tolist(), self._offsets[:, client + 1].tolist()
        columns = zip(self._columns, starts, stops, strict=True)
        return from_tensors([column[start:stop] for column, start, stop in columns])


def to_tensors(local: LocalData) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a client's samples as four tensors; images are n×H×W×C, their order in memory."""
    train, test = local.train, local.test
    return _channels_last(train.x), train.y, _channels_last(test.x), test.y


def from_tensors(tensors: Sequence[Tensor]) -> LocalData:
    """Return the samples of which `to_tensors` has made these tensors."""
    train_x, train_y, test_x, test_y = tensors
    return LocalData(Samples(_channels_first(train_x), train_y), Samples(_channels_first(test_x), test_y))


def _channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1) if x.ndim == 4 else x


def _channels_first(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2) if x.ndim == 4 else x


@dataclass(frozen=True)
class Opening:
    """To a worker: a pickled runner, the samples of its clients, and where to import modules from."""

    runner: bytes
    data: SharedData
    path: list[str]


@dataclass(frozen=True)
class Assignment:
    """To a worker: a task, with the shared tensors that it reads and writes."""

    task: Task
    received: SharedTensor
    """The first rows are the models that the client receives, one for each of the task's `models`."""
    before: dict[str, SharedTensor]
    """The client state before the task."""
    after: dict[str, SharedTensor]
    """The client state after the task."""
    updates: SharedTensor
    """The matrix of updates of the batch."""
    row: int
    """Which row of it the update goes to."""


Shared = tuple[SharedTensor, Tensor]
"""A shared tensor, as other processes find it and as this one has it."""


class Workspace:
    """What one worker reads and writes during a task, in memory that it shares with the pool.

    The state before the task is not overwritten by the state after it, as tensors of the two may depend on
    each other.
    """

    def __init__(self) -> None:
        self._memory = Memory()
        self._received = self._memory.zeros((0, 0), torch.float32)
        self._before: dict[str, Shared] = {}
        self._after: dict[str, Shared] = {}

    def assign(
        self, task: Task, models: Tensor, state: Tensors, updates: SharedTensor, row: int
    ) -> Assignment:
        """Copy in the models that the client receives and its state; return the message to the worker."""
        self._reserve(len(task.models), models, state)
        handle, received = self._received
        for place, source in enumerate(task.models):
            received[place] = models[source]
        for name, (_, tensor) in self._before.items():
            tensor.copy_(state[name])
        return Assignment(task, handle, _handles(self._before), _handles(self._after), updates, row)

    def state(self) -> Tensors:
        """Return the state after the task, as views that are valid until the next one."""
        return {name: tensor for name, (_, tensor) in self._after.items()}

    def _reserve(self, count: int, models: Tensor, state: Tensors) -> None:
        """Allocate new tensors if the models or the state do not fit into the present ones."""
        _, received = self._received
        fits = len(received) >= count and received.shape[1] == models.shape[1]
        if fits and _types(self._before) == {name: (t.shape, t.dtype) for name, t in state.items()}:
            return
        self._memory.close()
        self._memory = Memory()
        self._received = self._memory.zeros((max(count, len(received)), models.shape[1]), models.dtype)
        self._before, self._after = (
            {name: self._memory.zeros(t.shape, t.dtype) for name, t in state.items()} for _ in range(2)
        )


def _handles(tensors: Mapping[str, Shared]) -> dict[str, SharedTensor]:
    return {name: handle for name, (handle, _) in tensors.items()}


def _types(tensors: Mapping[str, Shared]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, (_, tensor) in tensors.items()}
