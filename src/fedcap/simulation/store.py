"""The states of all clients between rounds: named tensors of each client that has trained.

A client that never trained takes no memory. Up to `IN_MEMORY` bytes, the states are in the memory of this
process, and every checkpoint has all of them. Beyond that they move to the rows of a file, and a checkpoint
has only a table: which row has the state of which client, and the row's checksum.

A row that the last checkpoint refers to is not overwritten: the new state goes to a free row, and the old row
becomes free with the next checkpoint. So a run that is killed at any moment, also while it writes a row,
finds all rows of its last checkpoint unchanged. The file never has more rows than there are clients that
have trained and states that have changed since the last checkpoint, so it is never compacted.
"""

from __future__ import annotations

import errno
import json
import math
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from torch import Tensor

from fedcap.errors import InputError
from fedcap.files import IN_MEMORY
from fedcap.state import Tensors, names_to_tensor, owned, tensor_to_names, under

STATES = "clients.bin"
"""The name of the file in the directory of a run."""
ROWS = "rows"
"""The tensor of a checkpoint that has the row of each client's state in the file."""

Shapes = Mapping[str, torch.Size]


class ClientStore:
    """Client states in the memory of this process or, above `IN_MEMORY` bytes, in a file."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self._states: dict[str, dict[str, Tensor]] = {}
        self._file: StateFile | None = None
        """The file; None while the states are in memory."""
        self._path: Path | None = None

    def use_directory(self, directory: Path) -> None:
        """Put the file into the directory of the run; without one, it is a temporary file."""
        self._path = directory / STATES

    def get(self, client: str) -> Tensors | None:
        """Return the state of a client, valid until the next `put`; None if it has not trained yet."""
        if self._file is None:
            return self._states.get(client)
        if client not in self._file.rows:
            return None
        return {name: tensor.to(self._device) for name, tensor in self._file.read(client).items()}

    def put(self, client: str, state: Tensors) -> None:
        """Store a copy of a client's state in place of the one before."""
        if self._file is not None:
            self._file.write(client, state)
            return
        known = self._states.get(client, {})
        if _shapes(known) == _shapes(state):
            for name, tensor in state.items():
                known[name].copy_(tensor)
            return
        self._states[client] = {name: tensor.detach().clone() for name, tensor in state.items()}
        self._move_if_large()

    def _move_if_large(self) -> None:
        """Move the states to a file if they are large, and single precision as methods promise."""
        first = next(iter(self._states.values()), {})
        size = sum(tensor.nbytes for tensor in first.values())
        if size * len(self._states) <= IN_MEMORY or any(t.dtype != torch.float32 for t in first.values()):
            return
        states, self._states = self._states, {}
        self._file = StateFile(_shapes(first), _opened(self._path, "w+b"))
        for client, state in states.items():
            self._file.write(client, state)

    def __iter__(self) -> Iterator[str]:
        return iter(self._states if self._file is None else self._file.rows)

    def __contains__(self, client: str) -> bool:
        return client in (self._states if self._file is None else self._file.rows)

    def state_dict(self) -> dict[str, Tensor]:
        """Return all states, or the table of the file, with the clients in the order of their first training.

        What the table refers to is on disk then.
        """
        if self._file is not None:
            return self._file.table()
        clients = list(self._states)
        names = list(self._states[clients[0]]) if clients else []
        stacked = {name: torch.stack([self._states[client][name] for client in clients]) for name in names}
        return {"clients": names_to_tensor(clients), **under("kept", stacked)}

    def load_state_dict(self, tensors: Tensors) -> None:
        """Restore what `state_dict` returned."""
        self._states, self._file = {}, None
        if ROWS in tensors:
            self._file = StateFile.open(tensors, _opened(self._path, "r+b"))
            return
        clients = tensor_to_names(tensors["clients"])
        rows = owned("kept", tensors)
        self._states = {
            client: {name: part[row].clone().to(self._device) for name, part in rows.items()}
            for row, client in enumerate(clients)
        }
        self._move_if_large()

    def saved(self) -> None:
        """Note that the last `state_dict` is on disk: rows that it does not refer to are free from now on."""
        if self._file is not None:
            self._file.saved()


class StateFile:
    """A file with a row for each client's state: the bytes of its tensors, one after the other."""

    def __init__(self, shapes: Shapes, file: BinaryIO) -> None:
        self.rows: dict[str, int] = {}
        """The row of each client, in the order in which clients were added."""
        self._checksums: dict[str, int] = {}
        self.shapes = dict(shapes)
        self._size = 4 * sum(map(math.prod, self.shapes.values()))
        """The number of bytes of a row."""
        self._kept: set[int] = set()
        """The rows that the last checkpoint refers to."""
        self._free: list[int] = []
        self._count = 0
        """The number of rows in the file."""
        self._file = file

    @classmethod
    def open(cls, table: Tensors, file: BinaryIO) -> StateFile:
        """Return a file, given the table that `table` returned; rows that are not in it are free."""
        shapes = {name: torch.Size(shape) for name, shape in json.loads(tensor_to_names(table["shapes"])[0])}
        found = cls(shapes, file)
        clients, rows = tensor_to_names(table["clients"]), table[ROWS].tolist()
        found.rows = dict(zip(clients, rows, strict=True))
        found._checksums = dict(zip(clients, table["checksums"].tolist(), strict=True))
        found._count = max(rows, default=-1) + 1
        found.saved()
        return found

    def read(self, client: str) -> dict[str, Tensor]:
        """Return the state of a client; raise an `InputError` if the file is damaged there."""
        row = self.rows[client]
        content = bytearray(os.pread(self._file.fileno(), self._size, row * self._size))
        if len(content) != self._size or zlib.crc32(content) != self._checksums[client]:
            raise InputError(
                f"{self._file.name} is damaged: the state of client {client!r} does not match its checksum;"
                " repeat the run in a new directory",
                code="damaged-run",
                field=str(self._file.name),
            )
        return dict(self._split(torch.frombuffer(content, dtype=torch.float32)))

    def _split(self, row: Tensor) -> Iterator[tuple[str, Tensor]]:
        start = 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            yield name, row[start:stop].view(shape)
            start = stop

    def write(self, client: str, state: Tensors) -> None:
        """Write a client's state to its row, or to a free one if the last checkpoint refers to its row."""
        if _shapes(state) != self.shapes:
            raise ValueError(f"the state of client {client} should be {self.shapes} (got {_shapes(state)})")
        parts = [state[name].detach().cpu().float().reshape(-1) for name in self.shapes]
        content = torch.cat(parts).numpy().data
        row = self.rows.get(client)
        if row is None or row in self._kept:
            row = self._free.pop() if self._free else self._count
            self._count = max(self._count, row + 1)
        written = os.pwrite(self._file.fileno(), content, row * self._size)
        if written != self._size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._file.name))
        self.rows[client], self._checksums[client] = row, zlib.crc32(content)

    def table(self) -> dict[str, Tensor]:
        """Write all rows to disk, and return which client has which row."""
        os.fsync(self._file.fileno())
        return {
            "clients": names_to_tensor(list(self.rows)),
            ROWS: torch.tensor(list(self.rows.values())),
            "checksums": torch.tensor(list(self._checksums.values())),
            "shapes": names_to_tensor([json.dumps([[name, list(s)] for name, s in self.shapes.items()])]),
        }

    def saved(self) -> None:
        """Free all rows but those that the present table refers to."""
        self._kept = set(self.rows.values())
        self._free = [row for row in range(self._count) if row not in self._kept]


def client_states(checkpoint: Any, directory: Path) -> StateFile | None:
    """Return the file of client states that an open checkpoint in a directory refers to, if it does."""
    names = [name for name in checkpoint.keys() if name.startswith("clients.")]  # noqa: SIM118
    if f"clients.{ROWS}" not in names:
        return None
    table = owned("clients", {name: checkpoint.get_tensor(name) for name in names})
    return StateFile.open(table, _opened(directory / STATES, "rb"))


def _opened(path: Path | None, mode: str) -> BinaryIO:
    """Open the file of a run, or a temporary file."""
    if path is None:
        return cast(BinaryIO, tempfile.TemporaryFile(buffering=0))
    try:
        return cast(BinaryIO, open(path, mode, buffering=0))
    except FileNotFoundError:
        raise InputError(
            f"{path} is missing, and the clients' states with it; repeat the run in a new directory",
            code="damaged-run",
            field=str(path),
        ) from None


def _shapes(state: Tensors) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in state.items()}
