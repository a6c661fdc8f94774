"""Tensors that several processes can map, in memory files without a name.

The kernel frees the memory once its descriptor is closed and no process maps it, even if they were killed.
"""

from __future__ import annotations

import math
import os
import weakref
from dataclasses import dataclass

import torch
from torch import Tensor


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
