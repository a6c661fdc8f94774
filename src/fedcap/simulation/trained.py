"""The trained models of a run, each built when it is asked for, from its checkpoint or from memory.

Neither the data nor the device of the run is needed. *Personal* is a client's own model, *shared* the one
that the server would send it now, *global* the server's one model for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedcap import models
from fedcap.data.base import Scaling
from fedcap.errors import InputError, nearest
from fedcap.methods import Method
from fedcap.methods.server import Server
from fedcap.runs import Provenance
from fedcap.simulation.keeping import InMemory, Keeping, OnDisk
from fedcap.simulation.loop import Simulation
from fedcap.simulation.preparation import Answering, Inputs, Preparation, scaling_tensors
from fedcap.training import fresh_network, single_thread

READINGS = ("personal", "shared", "global")
BATCH = 4096
"""How many inputs are answered at a time."""
MANY = 40
"""With more clients than this, an error does not list them all."""


class TrainedModels:
    """The models of a run's clients."""

    def __init__(
        self,
        clients: Sequence[str],
        method: Method[Any],
        build: Callable[[], nn.Module],
        inputs: Inputs,
        keeping: Keeping,
    ) -> None:
        self.clients = tuple(clients)
        self.inputs = inputs
        self._method = method
        self._build = build
        self._keeping = keeping

    @classmethod
    def of(cls, simulation: Simulation, directory: Path | None = None) -> TrainedModels:
        """Return the models of a run that was played here; with a directory, they are read from there."""
        keeping: Keeping
        if directory is not None:
            keeping = OnDisk(directory)
        else:
            keeping = InMemory(simulation.server, simulation.store, scaling_tensors(simulation.data))
        inputs = Inputs.of(simulation.data)
        return cls(simulation.names, simulation.method, simulation.build, inputs, keeping)

    @classmethod
    def saved(
        cls, directory: Path, provenance: Provenance, method: Method[Any], model: str | models.Given
    ) -> TrainedModels:
        """Return the models of a run's directory, given its method and its network."""
        inputs = Inputs.recorded(provenance)
        build = partial(_build, model, inputs.shape, len(inputs.class_names))
        return cls(provenance.clients, method, build, inputs, OnDisk(directory))

    def model(self, client: str | int | None = None, reading: str = "personal") -> nn.Module:
        """Return a model in evaluation mode, on the CPU, with weights of its own.

        The global model needs no client. If there is no such model, an `InputError` says why and which
        there are.
        """
        self._check()
        if reading not in READINGS:
            raise InputError(f"unknown reading {reading!r}: {nearest(str(reading), READINGS)}")
        who = None if client is None and reading == "global" else self._known(client)
        if reading == "personal" and who is not None:
            kept = self._keeping.kept(who)
            if kept is not None:
                plain = {name: tensor.detach().cpu() for name, tensor in kept.items()}
                return self._method.personal_model(self._module, plain).eval()
        server = self._server()
        why = self._lacks(server, who, reading)
        if why is not None:
            raise InputError(f"no {reading} model{'' if who is None else f' of client {who!r}'}: {why}")
        return self._module(_weights(server, who, reading))

    def preparation(self, client: str | int | None = None) -> Preparation:
        """Return how inputs are prepared for a client's model."""
        self._check()
        scaling = self._keeping.scaling()
        who = None if client is None else self._known(client)
        shape, pixels = self.inputs.shape, self.inputs.pixels
        if not scaling:
            return Preparation(shape, pixels)
        if who is None:
            raise InputError("the run standardised each client's inputs by its own data: name the client")
        row = self.clients.index(who)
        own = Scaling(*(scaling[part][row].cpu().clone() for part in ("mean", "deviation")))
        return Preparation(shape, pixels, own)

    def answering(self, client: str | int | None = None, reading: str = "personal") -> Answering:
        """Return a model together with its preparation and a softmax."""
        return Answering(self.preparation(client), self.model(client, reading))

    def predict(self, client: str | int | None, inputs: Any, reading: str = "personal") -> Tensor:
        """Return how probable each class is, n×classes, for inputs as a user has them."""
        answering = self.answering(client, reading)
        x = answering.preparation.arranged(inputs)
        with torch.no_grad():
            return torch.cat([answering(part) for part in torch.split(x, BATCH)])

    def _check(self) -> None:
        if not self.inputs.shape or not self.inputs.class_names:
            raise InputError(
                "the run was made by a version that did not write down what its networks take: run it again"
            )

    def _known(self, client: str | int | None) -> str:
        name = str(client)
        if client is not None and name in self.clients:
            return name
        near = nearest(name, self.clients)
        if len(self.clients) > MANY:
            near = f"{near.partition('(known: ')[0]}(there are {len(self.clients)}, from"
            near += f" {self.clients[0]!r} to {self.clients[-1]!r})"
        raise InputError(
            f"unknown client {name!r}: {near}" if client is not None else f"name a client {near}"
        )

    def _module(self, weights: Tensor) -> nn.Module:
        """Return a new network with these weights."""
        network = fresh_network(self._build, 0)
        if self._keeping.layout() not in (None, network.layout.digest()):
            raise InputError(
                "the checkpoint does not fit the network: the code of the network has changed since the run"
            )
        network.load(weights)
        return network.release().eval()

    def _server(self) -> Server:
        """Return a server with the state of the run's."""
        network = fresh_network(self._build, 0)
        server = Server(self._method, network.weights, network.layout, clients=self.clients)
        try:
            server.restore(self._keeping.server())
        except KeyError as error:
            called = type(self._method).__name__
            raise InputError(f"the checkpoint is not one of {called}: it has no {error}") from None
        return server

    def _lacks(self, server: Server, client: str | None, reading: str) -> str | None:
        """Return why there is no such model, and which there are; none if there is one."""
        why = {name: self._reason(server, client, name) for name in READINGS}
        there = [name for name, reason in why.items() if reason is None]
        if why[reading] is None:
            return None
        if client is None:
            there.append("a personal one of each client")
        return f"{why[reading]}; there is {' and '.join(there) if there else 'no other either'}"

    def _reason(self, server: Server, client: str | None, reading: str) -> str | None:
        """Return why there is no such model; none if there is one."""
        called = type(self._method).__name__
        if reading == "global":
            return f"{called} has no one model for all" if server.global_model is None else None
        if client is None:
            return "name a client"
        if reading == "personal":
            never = (
                "it has not trained here: it was not drawn yet, is an attacker that need not, or is a site"
            )
            return never if self._keeping.kept(client) is None else None
        if not self._method.shares:
            return f"{called} shares nothing"
        if type(self._method).shared is not Method.shared:
            return f"with {called} a client makes it itself, from the models it is sent and its own data"
        if client in server.removed:
            return "it was removed, and is sent nothing"
        if server.asks([client]):
            return "the server would first ask it for an update"
        return None


def _build(model: str | models.Given, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build the network."""
    return models.builder(model, shape, classes)()


def _weights(server: Server, client: str | None, reading: str) -> Tensor:
    """Return the global model, or what the server would send a client now, D."""
    with single_thread():
        if reading == "global" or client is None:
            found = server.global_model
            assert found is not None
            return found
        dispatch = server.models_for([client]).dispatch
        return dispatch.models[int(dispatch.rows[0, 0])]
