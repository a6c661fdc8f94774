"""A method's server, wherever its clients are: all that a driver needs.

It holds the state, knows its round, remembers who was removed, and lets nothing in that `intake` refuses. The
simulation drives it with workers of this machine, a federation with machines elsewhere. A round is

    opening = server.open(clients)         who takes part, and which newcomers first send a request
    serving = server.serve(requests)       which models go to whom, and what else clients are asked for
    closing = server.close(uploads)        who was refused or removed, and why

Clients are identities here; inside, methods know them by their rows in the roster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fedcap.detection import Reason
from fedcap.matrices import finite_rows
from fedcap.methods.base import Dispatch, Method
from fedcap.methods.conclude import Conclusion, conclude
from fedcap.methods.intake import Admission, Expected, Upload, admit
from fedcap.methods.roster import Roster
from fedcap.randomness import derive
from fedcap.state import Tensors, owned, under
from fedcap.training import Layout


@dataclass(frozen=True)
class Opening:
    """A round that begins."""

    round: int
    clients: tuple[str, ...]
    """Who takes part, in the order of the roster."""
    asked: tuple[str, ...]
    """Who of them must send a request before there can be a model for them."""
    start: Tensor | None
    """D: the model from which those asked train their request."""


@dataclass(frozen=True)
class Serving:
    """What goes to the participants of a round."""

    round: int
    clients: tuple[str, ...]
    """Who is served, in the order of the dispatch's rows."""
    dispatch: Dispatch
    refused: Mapping[str, str]
    """Who is not served, since its request could not be used, and why."""
    extra: int
    """How many numbers each client is asked for besides its update."""


@dataclass(frozen=True)
class Closing:
    """What the server found at the end of a round."""

    round: int
    scores: Mapping[str, Mapping[str, float]]
    """Every score's name, and each client's value; `norm` is always there."""
    limits: Mapping[str, float]
    """The limit of each score that has one."""
    removed: Mapping[str, Reason]
    """Who is out for good, and why."""
    refused: Mapping[str, str]
    """Whose upload did not count this round, and why."""
    bounded: Mapping[str, str]
    """Whose claims were cut down, and how."""
    notes: Sequence[str]
    """Where the server had to depart from the settings: a smaller M, another rule."""


class Server:
    """The server's side of a method: its state, its round, its roster, and who is out for good."""

    def __init__(
        self,
        method: Method[Any],
        weights: Tensor,
        layout: Layout,
        seed: int = 0,
        malicious: float = 0.0,
        clients: Sequence[str] = (),
    ) -> None:
        self.method = method
        self.roster = Roster(clients)
        self.round = 0
        """How many rounds have been closed."""
        self.removed: set[str] = set()
        self._state: Any = method.start(weights, layout)
        self._memory: Tensors = method.judge.start() if method.judge else {}
        self._size = layout.size
        self._seed = seed
        self._malicious = malicious
        """The share of participants assumed to be malicious."""
        self._device = weights.device
        self._opening: Opening | None = None
        self._serving: Serving | None = None

    def select(self, clients: Sequence[str], participation: float) -> list[str]:
        """Draw the participants of the next round among those who are not removed."""
        there = [client for client in clients if client not in self.removed]
        count = max(1, round(participation * len(clients)))
        if count >= len(there):
            return there
        order = torch.randperm(len(there), generator=derive(self._seed, "select", self.round + 1))
        return self.roster.sorted(there[at] for at in order[:count].tolist())

    def open(self, clients: Sequence[str]) -> Opening:
        """Begin the next round with these clients; the new are enrolled, the removed left out."""
        there = [client for client in clients if client not in self.removed]
        for client in there:
            self.roster.enrol(client)
        there = self.roster.sorted(dict.fromkeys(there))
        self._serving = None
        self._opening = Opening(self.round + 1, tuple(there), tuple(self.asks(there)), self.request_start)
        return self._opening

    def asks(self, clients: Sequence[str]) -> list[str]:
        """Return who of these must send a request before there can be a model for them."""
        ids = self.roster.rows(clients)
        return self.roster.names(ids[self.method.asks(self._state, ids)].tolist())

    @property
    def request_start(self) -> Tensor | None:
        """D: the model from which requests and the server's own root update are trained, if there is one."""
        return self.method.request_start(self._state)

    def models_for(
        self, clients: Sequence[str], requests: Sequence[Upload] = ()
    ) -> tuple[tuple[str, ...], Dispatch, dict[str, str]]:
        """Return what these clients would be sent now: who is served, the models, and who is not and why.

        The server's state does not change. `requests` needs an upload of each client that `asks` names.
        """
        asked = self.asks(clients)
        rows = {client: self.roster.row(client) for client in asked}
        admission = admit(requests, Expected(self.round + 1, rows, self._size), device=self._device)
        usable = finite_rows(admission.uploads.updates).cpu()
        found = dict(zip(admission.uploads.ids.tolist(), admission.uploads.updates, strict=True))
        found = {row: found[row] for row in admission.uploads.ids[usable].tolist()}
        faults = {client: "did not come" for client in asked if rows[client] not in found}
        faults |= dict.fromkeys(self.roster.names(admission.uploads.ids[~usable].tolist()), "not finite")
        faults |= {client: why for client, why in admission.refused.items() if client in faults}
        served = tuple(client for client in clients if client not in faults)
        dispatch = self.method.dispatch(self._state, self.roster.rows(served), found)
        return served, dispatch, {client: f"request {why}" for client, why in faults.items()}

    def serve(self, requests: Sequence[Upload] = ()) -> Serving:
        """Return the models of this round, given the requests of those who were asked for one."""
        if self._opening is None:
            raise RuntimeError("no round is open: open one first")
        served, dispatch, faults = self.models_for(self._opening.clients, requests)
        self._serving = Serving(self._opening.round, served, dispatch, faults, self.method.extra(dispatch))
        self._opening = None
        return self._serving

    def close(self, uploads: Sequence[Upload], root: Tensor | None = None) -> Closing:
        """End the round with what came back; afterwards the dispatch that was served may have no models."""
        serving, self._serving = self._serving, None
        if serving is None:
            raise RuntimeError("no round is being played: open and serve one first")
        rows = {client: self.roster.row(client) for client in serving.clients}
        assumed = int(self._malicious * len(rows) + 1e-9)
        expected = Expected(serving.round, rows, self._size, serving.extra)
        admission = admit(uploads, expected, assumed, self._device)
        admitted = replace(admission.uploads, root=root)
        found = conclude(self.method, self._state, self._memory, serving.dispatch, admitted)
        self._state, self._memory, self.round = found.state, found.memory, serving.round
        self.removed |= set(self.roster.names(found.verdict.removed))
        return self._closing(found, admission)

    def _closing(self, found: Conclusion, admission: Admission) -> Closing:
        """Return what was found, by clients' names instead of rows of the roster."""
        name = self.roster.name
        clients = self.roster.names(found.look.ids.tolist())
        scores = found.verdict.scores
        values = {"norm": found.look.norms, **{score.name: score.values for score in scores}}
        return Closing(
            self.round,
            {score: dict(zip(clients, value.tolist(), strict=True)) for score, value in values.items()},
            {score.name: score.limit for score in scores},
            {name(row): reason for row, reason in found.verdict.removed.items()},
            {**admission.refused, **{name(row): why for row, why in found.refused.items()}},
            admission.bounded,
            found.notes,
        )

    @property
    def global_model(self) -> Tensor | None:
        """D: the server's one model for all, if the method has one."""
        return self.method.global_model(self._state)

    @property
    def pools(self) -> tuple[tuple[str, ...], Tensor] | None:
        """Whose models the server holds, and the models, P×D, if the method holds any."""
        pools = self.method.pools(self._state)
        return None if pools is None else (tuple(self.roster.names(pools.ids.tolist())), pools.models)

    @property
    def limits(self) -> Mapping[str, float]:
        """The limits of the scores that have a fixed one."""
        return {} if self.method.judge is None else self.method.judge.limits

    def tensors(self) -> dict[str, Tensor]:
        """Return all that the server knows between two rounds, to be written to disk."""
        state = {part.name: getattr(self._state, part.name) for part in fields(self._state)}
        return {
            "round": torch.tensor(self.round),
            "removed": self.roster.rows(sorted(self.removed, key=self.roster.row)),
            **under("state", state),
            **under("detection", self._memory),
            **under("roster", self.roster.tensors()),
        }

    def restore(self, tensors: Tensors) -> None:
        """Go back to what `tensors` returned; a round under way is forgotten."""
        self._opening = self._serving = None
        self.round = int(tensors["round"])
        self.roster.restore(owned("roster", tensors))
        self.removed = set(self.roster.names(tensors["removed"].tolist()))
        self._memory = owned("detection", tensors)
        saved = owned("state", tensors)
        devices = {part.name: getattr(self._state, part.name).device for part in fields(self._state)}
        self._state = self.method.state_type(**{name: saved[name].to(devices[name]) for name in devices})
