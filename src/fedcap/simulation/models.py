"""The trained models of a run, read from its checkpoint or from memory.

*Personal* is a client's own model, *shared* the one that the server would send it now, *global* the server's
one model for all clients. Neither the data nor the device of the run is needed. A `Run` is a run's directory
with its models: `fedcap.read(path).model("u03")`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from fedcap import methods, models, runs
from fedcap.data.base import Scaling
from fedcap.data.encoding import Encoding
from fedcap.errors import InputError, nearest
from fedcap.methods import Method
from fedcap.runs import CHECKPOINT, RESULT, Provenance, RunDirectory
from fedcap.runs.checkpoint import read_checkpoint
from fedcap.server.server import Server
from fedcap.simulation.inputs import Inputs, Predictor, Preparation, scaling_tensors
from fedcap.simulation.loop import Simulation
from fedcap.simulation.store import ClientStore, client_states
from fedcap.state import Tensors, owned, tensor_to_names
from fedcap.training import Network, fresh_network, single_thread


class TensorSource(Protocol):
    """Where the tensors of trained models come from."""

    def layout(self) -> str | None:
        """Return the digest of the network's layout with which they were saved, if it could differ."""

    def server(self) -> Tensors:
        """Return the server's tensors."""

    def client_state(self, client: str) -> Tensors | None:
        """Return the state of a client; None if it never trained."""

    def scaling(self) -> Tensors:
        """Return the clients' means and deviations, N×…; empty if nothing was standardised."""


class InMemory:
    """The tensors of a run that was played in this process and has no directory."""

    def __init__(self, server: Server, store: ClientStore, scaling: Tensors) -> None:
        self._server = server
        self._store = store
        self._scaling = scaling

    def layout(self) -> None:
        """Return None: the run was played with the network as it is now."""

    def server(self) -> Tensors:
        """Return the server's tensors."""
        return self._server.state_dict()

    def client_state(self, client: str) -> Tensors | None:
        """Return the state of a client; None if it never trained."""
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
        if not self._checked:  # all of it, once: a damaged byte must not become a wrong prediction
            self._check()
            self._checked = True
        try:
            with safe_open(self._path, framework="pt") as file:
                yield file
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{self._path} is damaged and cannot be read: {error}", code="damaged-run"
            ) from None

    def _check(self) -> None:
        """Refuse a checkpoint that is missing, damaged or of another run."""
        directory = self._directory
        if not self._path.exists():
            if not (directory.path / RESULT).exists():
                raise InputError(
                    f"{directory.path} has no models yet: there is no {CHECKPOINT} in it",
                    code="no-model",
                    field=str(directory.path),
                )
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

    def client_state(self, client: str) -> Tensors | None:
        """Return the state of a client without reading the others'; None if it never trained."""
        with self._open() as file:
            states = client_states(file, self._directory.path)
            if states is not None:
                return states.read(client) if client in states.rows else None
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


READINGS = ("personal", "shared", "global")
BATCH = 4096
"""The number of inputs that a model is applied to at a time."""
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
        source: TensorSource,
    ) -> None:
        self.clients = clients
        self.inputs = inputs
        self._method = method
        self._build = build
        self._source = source

    @classmethod
    def of(cls, simulation: Simulation, directory: Path | None = None) -> TrainedModels:
        """Return the models of a run that was played here; with a directory, they are read from there."""
        source: TensorSource
        if directory is not None:
            source = OnDisk(directory)
        else:
            source = InMemory(simulation.server, simulation.store, scaling_tensors(simulation.data))
        inputs = Inputs.of(simulation.data)
        return cls(simulation.names, simulation.method, simulation.build, inputs, source)

    @classmethod
    def saved(
        cls, directory: Path, provenance: Provenance, method: Method[Any], model: str | models.Given
    ) -> TrainedModels:
        """Return the models of a run's directory, given its method and its network."""
        inputs = Inputs.recorded(provenance)
        build = partial(_build, model, inputs.shape, len(inputs.class_names), inputs.integers)
        return cls(provenance.clients, method, build, inputs, OnDisk(directory))

    def model(self, client: str | int | None = None, reading: str = "personal") -> nn.Module:
        """Return a model in evaluation mode, on the CPU, with its own weights.

        The global model needs no client. If there is no such model, an `InputError` says why and which
        there are.
        """
        self._check()
        if reading not in READINGS:
            raise InputError(
                f"unknown reading {reading!r}: {nearest(str(reading), READINGS)}",
                code="unknown-name",
                field="reading",
            )
        who = None if client is None and reading == "global" else self._known(client)
        if reading == "personal" and who is not None:
            state = self._source.client_state(who)
            if state is not None:
                own = {name: tensor.detach().cpu() for name, tensor in state.items()}
                network = self._network()
                module = self._method.predictor(network, own)
                network.release()
                return module.eval()
        server = self._server()
        why = self._lacks(server, who, reading)
        if why is not None:
            raise InputError(
                f"no {reading} model{'' if who is None else f' of client {who!r}'}: {why}",
                code="no-model",
                field="reading",
            )
        return self._module(_weights(server, who, reading))

    def preparation(self, client: str | int | None = None) -> Preparation:
        """Return how inputs are prepared for a client's model."""
        self._check()
        scaling = self._source.scaling()
        who = None if client is None else self._known(client)
        inputs = self.inputs
        if not scaling:
            return Preparation(
                inputs.shape, inputs.pixels, features=inputs.features, integers=inputs.integers
            )
        if who is None:
            known = (
                nearest("", self.clients) if len(self.clients) <= MANY else f"there are {len(self.clients)}"
            )
            raise InputError(
                f"the run prepared each client's inputs by its own data: name the client: {known}",
                code="missing-client",
                field="client",
            )
        row = self.clients.index(who)
        own = {name: stacked[row].cpu().clone() for name, stacked in scaling.items()}
        return Preparation(
            inputs.shape,
            inputs.pixels,
            Scaling(own["mean"], own["deviation"]) if "mean" in own else None,
            inputs.features,
            Encoding(inputs.levels, own["median"]) if "median" in own else None,
        )

    def predictor(self, client: str | int | None = None, reading: str = "personal") -> Predictor:
        """Return a model together with its preparation and a softmax."""
        return Predictor(self.preparation(client), self.model(client, reading))

    def predict(self, client: str | int | None, inputs: Any, reading: str = "personal") -> Tensor:
        """Return the probability of each class, n×classes, for inputs as users have them."""
        predictor = self.predictor(client, reading)
        x = predictor.preparation.arranged(inputs)
        with torch.no_grad():
            return torch.cat([predictor(part) for part in torch.split(x, BATCH)])

    def _check(self) -> None:
        if not self.inputs.shape or not self.inputs.class_names:
            raise InputError(
                "an older version made the run and did not record the inputs of its networks: run it again",
                code="older-state",
            )

    def _known(self, client: str | int | None) -> str:
        name = str(client)
        if client is not None and name in self.clients:
            return name
        near = nearest("" if client is None else name, self.clients)
        if len(self.clients) > MANY:
            hint = near.partition("(known: ")[0] if "(known: " in near else ""
            near = f"{hint}there are {len(self.clients)}, from {self.clients[0]!r} to {self.clients[-1]!r}"
        raise InputError(
            f"unknown client {name!r}: {near}" if client is not None else f"name a client: {near}",
            code="unknown-name" if client is not None else "missing-client",
            field="client",
        )

    def _network(self) -> Network:
        """Return a new network, which fits the saved weights."""
        network = fresh_network(self._build, 0)
        if self._source.layout() not in (None, network.layout.digest()):
            raise InputError(
                "the checkpoint does not fit the network: the code of the network has changed since the run",
                code="other-network",
            )
        return network

    def _module(self, weights: Tensor) -> nn.Module:
        """Return a new module with these weights."""
        network = self._network()
        network.load(weights)
        return network.release().eval()

    def _server(self) -> Server:
        """Return a server with the saved state."""
        network = fresh_network(self._build, 0)
        server = Server(self._method, network.weights, network.layout, clients=self.clients)
        try:
            server.load_state_dict(self._source.server())
        except KeyError as error:
            called = type(self._method).__name__
            raise InputError(
                f"the checkpoint is not one of {called}: it has no {error}", code="damaged-run"
            ) from None
        return server

    def _lacks(self, server: Server, client: str | None, reading: str) -> str | None:
        """Return why there is no such model, and which models there are; None if there is one."""
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
            return f"{called} has no one model for all" if server.inspect().global_model is None else None
        if client is None:
            return "name a client"
        if reading == "personal":
            never = "it has not trained here: it was not drawn yet, is malicious and need not, or is a site"
            return never if self._source.client_state(client) is None else None
        if not self._method.shares:
            return f"{called} shares nothing"
        if type(self._method).received_model is not Method.received_model:
            return f"with {called} a client mixes it itself, from the models it receives and its own data"
        if client in server.removed:
            return "it was removed, and receives none"
        if len(server.models_for([client]).pending):
            return "the server would first ask it for an update"
        return None


def _build(model: str | models.Given, shape: tuple[int, ...], classes: int, integers: bool) -> nn.Module:
    """Build the network."""
    return models.builder(model, shape, classes, integers)()


def _weights(server: Server, client: str | None, reading: str) -> Tensor:
    """Return the global model, or what the server would send a client now, D."""
    with single_thread():
        if reading == "global" or client is None:
            found = server.inspect().global_model
            assert found is not None
            return found
        sent = server.models_for([client])
        return sent.models[int(sent.index[0, 0])]


@dataclass(frozen=True, repr=False)
class Run(runs.Run):
    """The records of a run so far, and the models in its checkpoint."""

    @cached_property
    def models(self) -> TrainedModels:
        """The models of the last checkpoint."""
        named = self.settings.method
        method = methods.make(named.name, **named.options)
        return TrainedModels.saved(self.path, self.provenance, method, self.settings.model)

    def model(self, client: str | int | None = None, reading: str = "personal") -> nn.Module:
        """Return a client's model in evaluation mode, on the CPU: personal, shared or global.

        Personal is the client's own, shared the one that the server would send it now, global the server's
        one model for all, which needs no client. Neither the data nor the device of the run is needed.
        """
        return self.models.model(client, reading)

    def preparation(self, client: str | int | None = None) -> Preparation:
        """Return how inputs are prepared for a client's model: `model(preparation(x))` are its logits."""
        return self.models.preparation(client)

    def predict(self, client: str | int | None, inputs: Any, reading: str = "personal") -> Tensor:
        """Return the probability of each class of `provenance.class_names`, n×classes, for raw inputs."""
        return self.models.predict(client, inputs, reading)


def read(path: Path | str) -> Run:
    """Read a run's directory, finished or not; if a file is missing, raise an `InputError` of one line."""
    plain = runs.read(path)
    run = Run(plain.path, plain.settings, plain.provenance, plain.rounds, plain.result)
    return run if run.result is None else replace(run, result=replace(run.result, models=run))
