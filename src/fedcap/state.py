"""State that outlives a round, as named tensors: how it is saved, restored and joined into one table.

Whatever keeps state (a server, an attack, the clients' store) has `tensors` and `restore`; a checkpoint is
all of their tensors, each under its owner's name: `server.round`, `clients.personal`.

The unit of data that flows through everything: inputs and their labels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]
"""Tensors by name."""


class Stateful(Protocol):
    """Something whose state can be saved and restored."""

    def tensors(self) -> dict[str, Tensor]:
        """Return all that must outlive the process."""

    def restore(self, tensors: Tensors) -> None:
        """Go back to what `tensors` returned."""


def under(owner: str, tensors: Tensors) -> dict[str, Tensor]:
    """Return the tensors under their owner's name: `name` becomes `owner.name`."""
    return {f"{owner}.{name}": tensor for name, tensor in tensors.items()}


def owned(owner: str, tensors: Tensors) -> dict[str, Tensor]:
    """Return one owner's tensors by their own names: the inverse of `under`."""
    start = f"{owner}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def names_to_tensor(names: Sequence[str]) -> Tensor:
    """Return a list of strings as bytes, so that it can stand among tensors."""
    return torch.frombuffer(bytearray(json.dumps(list(names)).encode()), dtype=torch.uint8)


def tensor_to_names(tensor: Tensor) -> list[str]:
    """Return the list of strings that `names_to_tensor` turned into bytes."""
    return list(json.loads(bytes(tensor.tolist())))


@dataclass(frozen=True)
class Samples:
    """Inputs x, n×…, and class labels y, n."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: str) -> Samples:
        """Return the samples on a device, images with their channels last: convolutions are faster so."""
        layout = torch.channels_last if self.x.ndim == 4 else torch.contiguous_format
        return Samples(self.x.to(device, memory_format=layout), self.y.to(device))
