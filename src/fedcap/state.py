"""Named tensors: the form of all state that outlives a round, and of the samples that models are trained on.

Objects with state (a server, an attack, the clients' store) have the methods `state_dict` and
`load_state_dict`. A checkpoint has the tensors of all of them, each under the name of its owner:
`server.round`, `clients.personal`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]
"""Tensors by name."""


def under(owner: str, tensors: Tensors) -> dict[str, Tensor]:
    """Return the tensors with the owner's name as a prefix: `name` becomes `owner.name`."""
    return {f"{owner}.{name}": tensor for name, tensor in tensors.items()}


def owned(owner: str, tensors: Tensors) -> dict[str, Tensor]:
    """Return the tensors of one owner, without the prefix: the inverse of `under`."""
    prefix = f"{owner}."
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def names_to_tensor(names: Sequence[str]) -> Tensor:
    """Return a list of strings as a tensor of bytes."""
    return torch.frombuffer(bytearray(json.dumps(list(names)).encode()), dtype=torch.uint8)


def tensor_to_names(tensor: Tensor) -> list[str]:
    """Return the list of strings of a tensor: the inverse of `names_to_tensor`."""
    return list(json.loads(bytes(tensor.tolist())))


_FILE = "fedcap_file"
"""The attribute of a mapped tensor that has the path of its file; tensors made from it do not have it."""


def map_array(path: Path) -> Tensor:
    """Return the array of an .npy file, mapped into memory; writing to it does not change the file."""
    tensor = torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))
    setattr(tensor, _FILE, path.absolute())
    return tensor


def mapped_file(tensor: Tensor) -> Path | None:
    """Return the file that `map_array` has mapped to this tensor; None for other tensors."""
    path: Path | None = getattr(tensor, _FILE, None)
    return path


@dataclass(frozen=True)
class Samples:
    """Inputs x, n×…, and class labels y, n."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: str) -> Samples:
        """Return the samples on a device, images with channels last, which makes convolutions faster."""
        layout = torch.channels_last if self.x.ndim == 4 else torch.contiguous_format
        return Samples(self.x.to(device, memory_format=layout), self.y.to(device))
