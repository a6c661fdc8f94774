"""The client index: from a client's name to its row, by which methods know it, and back.

A name is an opaque string (a number, a user's name, the fingerprint of a key). A client keeps its row for
good: rows are 0, 1, 2, … in the order in which clients were added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from fedcap.errors import InputError
from fedcap.state import Tensors, names_to_tensor, tensor_to_names


class ClientIndex:
    """All clients that were ever added, by name and by row."""

    def __init__(self, clients: Iterable[str] = ()) -> None:
        self._names: list[str] = []
        self._rows: dict[str, int] = {}
        for client in clients:
            self.add(client)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, client: str) -> bool:
        return client in self._rows

    def add(self, client: str) -> None:
        """Give a client the next row, unless it has one."""
        if client not in self._rows:
            self._rows[client] = len(self._names)
            self._names.append(client)

    def row(self, client: str) -> int:
        """Return the row of a client."""
        try:
            return self._rows[client]
        except KeyError:
            raise InputError(f"client {client!r} is not in the client index") from None

    def rows(self, clients: Sequence[str]) -> Tensor:
        """Return the rows of several clients, in the order given."""
        return torch.tensor([self.row(client) for client in clients], dtype=torch.long)

    def name(self, row: int) -> str:
        """Return the name of the client in a row."""
        return self._names[row]

    def names(self, rows: Tensor) -> list[str]:
        """Return the names of the clients in several rows, in the order given."""
        return [self._names[row] for row in rows.tolist()]

    def sorted(self, clients: Iterable[str]) -> list[str]:
        """Return the clients in the order of their rows; those without one come last, by name."""
        return sorted(clients, key=lambda client: (self._rows.get(client, len(self)), client))

    def state_dict(self) -> dict[str, Tensor]:
        """Return the names, to be saved."""
        return {"names": names_to_tensor(self._names)}

    def load_state_dict(self, tensors: Tensors) -> None:
        """Restore what `state_dict` returned."""
        self._names, self._rows = [], {}
        for client in tensor_to_names(tensors["names"]):
            self.add(client)
