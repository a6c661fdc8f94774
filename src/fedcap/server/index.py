"""The client index: from a client's name to its row, by which methods know it, and back.

A name is an opaque string (a number, a user's name, the fingerprint of a key). A client keeps its row for
good: rows are 0, 1, 2, … in the order in which clients were added. Clients that are numbered from 0 have
their numbers as rows, without a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from fedcap.errors import InputError
from fedcap.names import LONGEST_LIST, NumberedNames
from fedcap.state import Tensors, names_to_tensor, tensor_to_names


class ClientIndex:
    """All clients that were ever added, by name and by row."""

    def __init__(self, clients: Iterable[str] = ()) -> None:
        self._set(clients)

    def _set(self, clients: Iterable[str]) -> None:
        """Replace all clients by these."""
        self._numbered = clients if isinstance(clients, NumberedNames) else NumberedNames(0)
        self._names: list[str] = []
        """The names of the clients after the numbered ones."""
        self._rows: dict[str, int] = {}
        """Their rows."""
        for client in () if isinstance(clients, NumberedNames) else clients:
            self.add(client)

    def __len__(self) -> int:
        return len(self._numbered) + len(self._names)

    def __iter__(self) -> Iterator[str]:
        yield from self._numbered
        yield from self._names

    def __contains__(self, client: str) -> bool:
        return client in self._rows or client in self._numbered

    def add(self, client: str) -> None:
        """Give a client the next row, unless it has one."""
        if client not in self:
            self._rows[client] = len(self)
            self._names.append(client)

    def row(self, client: str) -> int:
        """Return the row of a client."""
        row = self._find(client)
        if row is None:
            raise InputError(
                f"client {client!r} is not in the client index", code="unknown-client", field=client
            )
        return row

    def _find(self, client: str) -> int | None:
        row = self._rows.get(client)
        return self._numbered.number(client) if row is None else row

    def rows(self, clients: Sequence[str]) -> Tensor:
        """Return the rows of several clients, in the order given."""
        return torch.tensor([self.row(client) for client in clients], dtype=torch.long)

    def name(self, row: int) -> str:
        """Return the name of the client in a row."""
        first = len(self._numbered)
        return self._numbered[row] if row < first else self._names[row - first]

    def names(self, rows: Tensor) -> list[str]:
        """Return the names of the clients in several rows, in the order given."""
        return [self.name(row) for row in rows.tolist()]

    def sorted(self, clients: Iterable[str]) -> list[str]:
        """Return the clients in the order of their rows; those without one come last, by name."""

        def place(client: str) -> tuple[int, str]:
            row = self._find(client)
            return len(self) if row is None else row, client

        return sorted(clients, key=place)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the names, or the number of clients if there are many numbered ones, to be saved."""
        if not self._names and len(self) > LONGEST_LIST:
            return {"count": torch.tensor(len(self))}
        return {"names": names_to_tensor(list(self))}

    def load_state_dict(self, tensors: Tensors) -> None:
        """Restore what `state_dict` returned."""
        if "count" in tensors:
            self._set(NumberedNames(int(tensors["count"])))
            return
        names = tensor_to_names(tensors["names"])
        self._set(NumberedNames(len(names)) if NumberedNames(len(names)) == names else names)
