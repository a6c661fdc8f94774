"""What clients keep between rounds: named tensors of each, behind a small store.

The store is asked for one client at a time, so that what absent clients keep can live elsewhere than in
memory. A client that has not trained yet has nothing in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from fedcap.state import Stateful, Tensors, names_to_tensor, owned, tensor_to_names, under


class ClientStore(Stateful, Protocol):
    """Where what clients keep is kept."""

    def get(self, client: str) -> Tensors | None:
        """Return what a client keeps, until the next `put`; none if it has not trained yet."""

    def put(self, client: str, kept: Tensors) -> None:
        """Store a copy of `kept` for a client, in place of what it kept before."""

    def __iter__(self) -> Iterator[str]:
        """Go through the clients that have something here."""


class MemoryStore:
    """A store in this process's memory."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self._kept: dict[str, dict[str, Tensor]] = {}

    def get(self, client: str) -> Tensors | None:
        """Return what a client keeps, none if it has not trained yet."""
        return self._kept.get(client)

    def put(self, client: str, kept: Tensors) -> None:
        """Store a copy of `kept` for a client, in place of what it kept before."""
        mine = self._kept.get(client, {})
        if _shapes(mine) == _shapes(kept):
            for name, tensor in kept.items():
                mine[name].copy_(tensor)
        else:
            self._kept[client] = {name: tensor.detach().clone() for name, tensor in kept.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def tensors(self) -> dict[str, Tensor]:
        """Return who has trained, and each named tensor of all of them, stacked in that order."""
        clients = list(self._kept)
        names = list(self._kept[clients[0]]) if clients else []
        stacked = {name: torch.stack([self._kept[client][name] for client in clients]) for name in names}
        return {"clients": names_to_tensor(clients), **under("kept", stacked)}

    def restore(self, tensors: Tensors) -> None:
        """Go back to what `tensors` returned."""
        clients = tensor_to_names(tensors["clients"])
        rows = owned("kept", tensors)
        self._kept = {
            client: {name: part[row].clone().to(self._device) for name, part in rows.items()}
            for row, client in enumerate(clients)
        }


def _shapes(kept: Tensors) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in kept.items()}
