"""Where the tensors of a run are kept: in the memory of the process that played it, or in its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError, safe_open

from fedcap.errors import InputError
from fedcap.methods.server import Server
from fedcap.runs import CHECKPOINT, RESULT, RunDirectory
from fedcap.runs.checkpoint import read_checkpoint
from fedcap.simulation.store import ClientStore
from fedcap.state import Tensors, owned, tensor_to_names


class Keeping(Protocol):
    """Where the tensors of a run are kept."""

    def layout(self) -> str | None:
        """Return the digest of the network's layout with which they were written, if it could differ."""

    def server(self) -> Tensors:
        """Return the server's tensors."""

    def kept(self, client: str) -> Tensors | None:
        """Return what a client keeps; none if it never trained."""

    def scaling(self) -> Tensors:
        """Return the clients' means and deviations, N×…; empty if nothing was standardised."""


class InMemory:
    """The tensors of a run that was played in this process and has no directory."""

    def __init__(self, server: Server, store: ClientStore, scaling: Tensors) -> None:
        self._server = server
        self._store = store
        self._scaling = scaling

    def layout(self) -> None:
        """Return none: the run was played with the network as it is."""

    def server(self) -> Tensors:
        """Return the server's tensors."""
        return self._server.tensors()

    def kept(self, client: str) -> Tensors | None:
        """Return what a client keeps; none if it never trained."""
        return self._store.get(client)

    def scaling(self) -> Tensors:
        """Return the clients' means and deviations."""
        return self._scaling


class OnDisk:
    """The tensors in the checkpoint of a run's directory, read when they are needed."""

    def __init__(self, directory: Path) -> None:
        self._directory = RunDirectory(directory.absolute())
        self._path = self._directory.checkpoint
        self._checked = False

    @contextmanager
    def _open(self) -> Iterator[Any]:
        if not self._checked:  # all of it, once: a wrong byte must not become a wrong answer
            self._check()
            self._checked = True
        try:
            with safe_open(self._path, framework="pt") as file:
                yield file
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{self._path} is damaged and cannot be read: {error}") from None

    def _check(self) -> None:
        """Refuse a checkpoint that is missing, damaged or of another run."""
        directory = self._directory
        if not self._path.exists():
            if not (directory.path / RESULT).exists():
                raise InputError(f"{directory.path} has no models yet: there is no {CHECKPOINT} in it")
            raise directory.damaged(CHECKPOINT, "is missing, and the models with it")
        facts = directory.provenance()
        read_checkpoint(directory, facts.course if facts else "")

    def layout(self) -> str:
        """Return the layout's digest as the checkpoint has it."""
        with self._open() as file:
            return str(json.loads(file.metadata()["run"])["layout"])

    def server(self) -> Tensors:
        """Return the server's tensors."""
        return self._owned("server")

    def kept(self, client: str) -> Tensors | None:
        """Return what a client keeps, without reading what the others keep; none if it never trained."""
        with self._open() as file:
            clients = tensor_to_names(file.get_tensor("clients.clients"))
            if client not in clients:
                return None
            row, start = clients.index(client), "clients.kept."
            names = [name for name in file.keys() if name.startswith(start)]  # noqa: SIM118
            return {name.removeprefix(start): file.get_slice(name)[row : row + 1][0] for name in names}

    def scaling(self) -> Tensors:
        """Return the clients' means and deviations."""
        return self._owned("scaling")

    def _owned(self, owner: str) -> Tensors:
        with self._open() as file:
            names = [name for name in file.keys() if name.startswith(f"{owner}.")]  # noqa: SIM118
            return owned(owner, {name: file.get_tensor(name) for name in names})
