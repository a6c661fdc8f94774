"""The names of numbered clients: "0", "1", "2", … as a sequence that holds no list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

LONGEST_LIST = 20_000
"""Above this number of clients, files have the number of numbered clients and not their names."""


class NumberedNames(Sequence[str]):
    """The names of `count` clients that have no other names: their numbers from 0."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[str, ...]: ...
    def __getitem__(self, at: int | slice) -> str | tuple[str, ...]:
        found = range(self._count)[at]
        return str(found) if isinstance(found, int) else tuple(map(str, found))

    def __iter__(self) -> Iterator[str]:
        return map(str, range(self._count))

    def __contains__(self, name: object) -> bool:
        return self.number(name) is not None

    def number(self, name: object) -> int | None:
        """Return the number of a client; None if there is no client of this name."""
        if not isinstance(name, str) or len(name) > len(str(self._count)):
            return None
        if not (name.isascii() and name.isdecimal()) or str(int(name)) != name:
            return None
        return int(name) if int(name) < self._count else None

    def index(self, name: object, start: int = 0, stop: int | None = None) -> int:
        """Return the number of a client; raise a `ValueError` if there is no client of this name."""
        number = self.number(name)
        if number is None or number not in range(self._count)[start:stop]:
            raise ValueError(f"{name!r} is not the number of a client")
        return number

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NumberedNames):
            return len(self) == len(other)
        if not isinstance(other, tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"NumberedNames({self._count})"
