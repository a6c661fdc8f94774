"""Who is who: clients' identities, which are opaque strings, and the rows by which the methods know them.

A client keeps the row it was given when it was enrolled, for good: rows are 0, 1, 2, … in order of
enrolment, whatever the identities are (a number, a name, the fingerprint of a key).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from fedcap.errors import InputError
from fedcap.state import Tensors, names_to_tensor, tensor_to_names


class Roster:
    """Every client that was ever enrolled: from identity to row and back."""

    def __init__(self, clients: Iterable[str] = ()) -> None:
        self._names: list[str] = []
        self._rows: dict[str, int] = {}
        for client in clients:
            self.enrol(client)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, client: str) -> bool:
        return client in self._rows

    def enrol(self, client: str) -> int:
        """Give a client its row; whoever is enrolled already keeps the old one."""
        if client not in self._rows:
            self._rows[client] = len(self._names)
            self._names.append(client)
        return self._rows[client]

    def row(self, client: str) -> int:
        """Return the row of a client."""
        try:
            return self._rows[client]
        except KeyError:
            raise InputError(f"client {client!r} is not enrolled") from None

    def name(self, row: int) -> str:
        """Return the identity behind a row."""
        return self._names[row]

    def rows(self, clients: Sequence[str]) -> Tensor:
        """Return the rows of several clients, in the order given.

        Those who are not enrolled get rows that nobody has, in that order; they do not keep them.
        """
        free = iter(range(len(self), len(self) + len(clients)))
        rows = [self._rows[client] if client in self._rows else next(free) for client in clients]
        return torch.tensor(rows, dtype=torch.long)

    def names(self, rows: Iterable[int]) -> list[str]:
        """Return the identities behind several rows, in the order given."""
        return [self._names[row] for row in rows]

    def sorted(self, clients: Iterable[str]) -> list[str]:
        """Return the clients in the order of their rows; those not enrolled come last, by name."""
        return sorted(clients, key=lambda client: (self._rows.get(client, len(self)), client))

    def tensors(self) -> dict[str, Tensor]:
        """Return the identities, to be written to disk."""
        return {"names": names_to_tensor(self._names)}

    def restore(self, tensors: Tensors) -> None:
        """Go back to what `tensors` returned."""
        self.__init__(tensor_to_names(tensors["names"]))  # type: ignore[misc]
