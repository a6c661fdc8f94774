"""Tensors that several processes can map, in memory files without a name, and messages that refer to them.

The kernel frees the memory of such a file once no process has it open or mapped, even if they were killed.
The data set and its partition are copied once, for all workers, or mapped from the files of the cache. Each
worker also has a small workspace: the models that a client receives, and the client's state before and after
the task.
"""

from __future__ import annotations

import io
import itertools
import math
import os
import pickle
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, Self

import numpy as np
import torch
from torch import Tensor

from fedcap.state import Tensors, map_array, mapped_file
from fedcap.training.task import Task
from fedcap.training.workers.base import CheckingPickler, carried

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


@dataclass(frozen=True)
class Packed:
    """An object for other processes: a pickle without its tensors, and the memory file that has them."""

    content: bytes
    tensors: SharedTensor
    """Bytes."""

    @classmethod
    def of(cls, thing: Any, memory: Memory) -> Packed:
        """Copy an object; raise `NotPortableError` if no other process could load it.

        Tensors that are mapped from a file are not copied: the other processes map the file too.
        """
        descriptor = memory.file()
        with open(descriptor, "wb", closefd=False) as file:
            content = carried(thing, partial(_TensorPickler, file=file))
            file.write(bytes(_ALIGNMENT))  # so that the file is not empty
            return cls(content, SharedTensor.of(descriptor, [file.tell()], torch.uint8))

    def open(self) -> Any:
        """Return the object in another process, with tensors that are views of the shared memory."""
        return unpack(self.content, self.tensors.open())


def pack(thing: Any) -> tuple[bytes, np.ndarray[Any, Any]]:
    """Return a pickle of an object without its tensors, and their bytes, for processes on any machine.

    Raise `NotPortableError` if no other process could load it.
    """
    file = io.BytesIO()
    content = carried(thing, partial(_TensorPickler, file=file, maps=False))
    file.write(bytes(_ALIGNMENT))  # so that there are some
    return content, np.frombuffer(file.getbuffer(), dtype=np.uint8)


def unpack(content: bytes, tensors: Tensor) -> Any:
    """Return a packed object, with tensors that are views of the bytes."""
    return _TensorUnpickler(io.BytesIO(content), tensors).load()


_ALIGNMENT = 64
"""Tensors in a memory file begin at multiples of this number of bytes."""


class _TensorPickler(CheckingPickler):
    """Writes the tensors of an object to a file of their own."""

    def __init__(self, buffer: io.BytesIO, file: BinaryIO, maps: bool = True) -> None:
        super().__init__(buffer)
        self._file = file
        self._maps = maps
        """Whether the other process can map the files that are mapped here."""
        self._places: dict[int, tuple[Any, ...]] = {}
        self._tensors: list[Tensor] = []
        """Keeps the tensors alive: `_places` has them by their ids."""

    def persistent_id(self, thing: Any) -> Any:
        """Return where a tensor is; None for other objects."""
        super().persistent_id(thing)
        if type(thing) is not Tensor or thing.device.type != "cpu" or thing.layout != torch.strided:
            return None
        if id(thing) not in self._places:
            self._tensors.append(thing)
            self._places[id(thing)] = self._write(thing)
        return self._places[id(thing)]

    def _write(self, tensor: Tensor) -> tuple[Any, ...]:
        """Return the file of a mapped tensor, or write the tensor; images stay channels last."""
        if self._maps and (path := mapped_file(tensor)) is not None:
            return (path,)
        is_channels_last = not tensor.is_contiguous() and (
            tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
        )
        part = tensor.permute(0, 2, 3, 1) if is_channels_last else tensor
        self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
        start = self._file.tell()
        self._file.write(_bytes_of(part))
        return start, part.shape, part.dtype, is_channels_last


class _TensorUnpickler(pickle.Unpickler):
    """Reads an object whose tensors are views of one block of bytes."""

    def __init__(self, file: io.BytesIO, tensors: Tensor) -> None:
        super().__init__(file)
        self._bytes = tensors

    def persistent_load(self, place: Any) -> Tensor:
        """Return a tensor, given where it is."""
        if len(place) == 1:
            return map_array(place[0])
        start, shape, dtype, is_channels_last = place
        stop = start + math.prod(shape) * dtype.itemsize
        part = self._bytes[start:stop].view(dtype).view(shape)
        return part.permute(0, 3, 1, 2) if is_channels_last else part


@dataclass(frozen=True)
class Opening:
    """To a worker: a pickled runner, the samples of its clients, and where to import modules from."""

    runner: bytes
    data: Packed
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
