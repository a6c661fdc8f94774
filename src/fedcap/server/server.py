"""What a server tells its driver in the course of a round; clients are identities here.

A method's server, wherever its clients are: all that a driver needs.

It holds the state, knows its round, remembers who was removed, and lets nothing in that `intake` refuses. The
simulation drives it with workers of this machine, a federation with machines elsewhere. A round is

    opening = server.open(clients)         who takes part, and which newcomers first send a request
    serving = server.serve(requests)       which models go to whom, and what else is asked for
    closing = server.close(uploads)        who was refused or removed, and why

Clients are identities here; inside, methods know them by their rows in the roster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fedcap.detection import Reason
from fedcap.matrix import finite_rows
from fedcap.methods.base import Conclusion, Dispatch, Method, conclude
from fedcap.rng import derive
from fedcap.server.index import Roster
from fedcap.server.uploads import Admission, Expected, Upload, admit
from fedcap.state import Tensors, names_to_tensor, owned, tensor_to_names, under
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
class Offer:
    """Models for some clients."""

    clients: tuple[str, ...]
    """Who is served, in the order of the dispatch's rows."""
    dispatch: Dispatch
    refused: Mapping[str, str]
    """Who is not served, and why."""


@dataclass(frozen=True)
class Serving:
    """What goes to the participants of a round, and what they are asked for besides their update."""

    round: int
    offer: Offer
    extra: int
    """How many numbers each client sends besides its update."""
    root_start: Tensor | None
    """D: the model from which the server must train an update on its own root set, if the method has one."""
    pool: tuple[str, ...] = ()
    """From whose models each client's was mixed, in the order of the mixing weights' columns."""

    @property
    def clients(self) -> tuple[str, ...]:
        """Who is served, in the order of the dispatch's rows."""
        return self.offer.clients

    @property
    def dispatch(self) -> Dispatch:
        """The models, and which of them go to whom."""
        return self.offer.dispatch

    @property
    def mixing_entropy(self) -> float | None:
        """Mean entropy, in nats, of the weights from which each client's model was mixed, if they were."""
        mixing = self.dispatch.mixing
        if mixing is None or not len(mixing):
            return None
        return float(torch.special.entr(mixing).sum(dim=1).mean())


@dataclass(frozen=True)
class Closing:
    """What the server found at the end of a round."""

    round: int
    scores: Mapping[str, Mapping[str, float]]
    """Every score's name, and each client's value; `norm` is always there."""
    limits: Mapping[str, float]
    """The limit of each score that was judged."""
    removed: Mapping[str, Reason]
    """Who is out for good, and why."""
    suspected: Mapping[str, Reason]
    """Who is accused and not removed, and why; they are among the refused."""
    refused: Mapping[str, str]
    """Whose upload did not count this round, and why."""
    ignored: Sequence[tuple[str, str]]
    """What came besides an upload that counts, as (client, why): late, repeated."""
    bounded: Mapping[str, str]
    """Whose claims were cut down, and how."""
    samples: Mapping[str, int]
    """The number of training samples that each client reported."""
    notes: Sequence[str]
    """What the server had to do otherwise than asked: a smaller M, another rule."""


BY_HAND = "by hand"
"""The score that stands for somebody's decision."""


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
        """The number of the round under way, or of the last one; 0 before the first."""
        self.removed: dict[str, Reason] = {}
        """Who is out for good, and why."""
        self._state: Any = method.start(weights.clone(), layout)
        self._memory: Tensors = method.judge.start() if method.judge else {}
        self._size = layout.size
        self._seed = seed
        self._malicious = malicious
        """The share of participants assumed to be malicious."""
        self._device = weights.device
        self._opening: Opening | None = None
        self._serving: Serving | None = None

    def select(self, clients: Sequence[str], participation: float) -> list[str]:
        """Draw the participants of the next round among those who are not removed.

        The draw depends on who they are, not on the order in which they are given.
        """
        there = self.roster.sorted(client for client in clients if client not in self.removed)
        count = max(1, round(participation * len(clients)))
        if count >= len(there):
            return there
        order = torch.randperm(len(there), generator=derive(self._seed, "select", self.round + 1))
        return self.roster.sorted(there[at] for at in order[:count].tolist())

    def open(self, clients: Sequence[str]) -> Opening:
        """Begin a new round with these clients; the new are enrolled, the removed left out.

        A round that was begun and not closed is given up: answers to it are late from now on.
        """
        there = self.roster.sorted(dict.fromkeys(k for k in clients if k not in self.removed))
        for client in there:
            self.roster.enrol(client)
        self.round += 1
        self._serving = None
        self._opening = Opening(self.round, tuple(there), tuple(self.asks(there)), self.request_start)
        return self._opening

    def asks(self, clients: Sequence[str]) -> list[str]:
        """Return who of these must send a request before there can be a model for them."""
        asked = self.method.asks(self._state, self.roster.rows(clients)).tolist()
        return [client for client, must in zip(clients, asked, strict=True) if must]

    @property
    def request_start(self) -> Tensor | None:
        """D: the model from which requests and the server's own root update are trained, if there is one."""
        return self.method.request_start(self._state)

    def models_for(self, clients: Sequence[str], requests: Sequence[Upload] = ()) -> Offer:
        """Return what these clients would be sent now; nothing changes by it.

        `requests` has one of each client that `asks` names, with the number of this round. The clients need
        not be enrolled; the removed are offered nothing.
        """
        there = [client for client in clients if client not in self.removed]
        asked = self.asks(there)
        rows = dict(zip(there, self.roster.rows(there).tolist(), strict=True))
        wanted = Expected(self.round, {client: rows[client] for client in asked}, self._size)
        admission = admit(requests, wanted, device=self._device)
        ids, updates = admission.uploads.ids.tolist(), admission.uploads.updates
        usable = dict(zip(ids, finite_rows(updates).tolist(), strict=True))
        found = {row: update for row, update in zip(ids, updates, strict=True) if usable[row]}
        refused = dict.fromkeys((k for k in clients if k in self.removed), "was removed")
        refused |= dict.fromkeys(asked, "request did not come")
        refused |= {client: f"request {why}" for client, why in admission.refused.items()}
        refused |= {client: "request not finite" for client in asked if not usable.get(rows[client], True)}
        served = [client for client in there if client not in asked or rows[client] in found]
        dispatch = self.method.dispatch(self._state, self.roster.rows(served), found)
        refused = {client: why for client, why in refused.items() if client not in served}
        return Offer(tuple(served), dispatch, refused)

    def serve(self, requests: Sequence[Upload] = ()) -> Serving:
        """Return the models of this round, given the requests of those who were asked for one."""
        if self._opening is None:
            raise RuntimeError("no round is open: open one first")
        offer = self.models_for(self._opening.clients, requests)
        self._serving = Serving(
            self.round,
            offer,
            self.method.extra(offer.dispatch),
            self.request_start if self.method.root_samples else None,
            (self.pools or [()])[0],
        )
        self._opening = None
        return self._serving

    def close(self, uploads: Sequence[Upload], root: Tensor | None = None) -> Closing:
        """End the round with what came back.

        The models that were served may be used up by it. An error leaves state and round as they were.
        """
        if self._serving is None:
            raise RuntimeError("no round is being played: open and serve one first")
        offer = self._serving.offer
        rows = {client: self.roster.row(client) for client in offer.clients}
        assumed = int(self._malicious * len(rows) + 1e-9)
        expected = Expected(self.round, rows, self._size, self._serving.extra)
        admission = admit(uploads, expected, assumed, self._device)
        admitted = replace(admission.uploads, root=root)
        found = conclude(self.method, self._state, self._memory, offer.dispatch, admitted)
        closing = self._closing(found, admission)
        self._state, self._memory, self._serving = found.state, found.memory, None
        self.removed |= closing.removed
        return closing

    def foresee(self, uploads: Sequence[Upload], root: Tensor | None = None) -> tuple[Closing, Offer]:
        """Return how the round would end with these uploads, and what would then be sent; nothing changes."""
        assert self._serving is not None
        offer = self._serving.offer
        ahead = copy(self)  # nothing writes to a state's tensors, so they need no copies
        ahead.removed = dict(self.removed)
        ahead._serving = replace(self._serving, offer=replace(offer, dispatch=offer.dispatch.copy()))
        return ahead.close(uploads, root), ahead.models_for(offer.clients)

    def give_up(self) -> None:
        """Give up the round under way: it does not count, and the next one has its number."""
        if self._opening is None and self._serving is None:
            raise RuntimeError("no round is under way: there is none to give up")
        self.round -= 1
        self._opening = self._serving = None

    def _closing(self, found: Conclusion, admission: Admission) -> Closing:
        """Put what was found into the clients' names."""
        name = self.roster.name
        clients = self.roster.names(found.look.ids.tolist())
        scores = found.verdict.scores
        values = {"norm": found.look.norms, **{score.name: score.values for score in scores}}
        return Closing(
            self.round,
            {score: dict(zip(clients, value.tolist(), strict=True)) for score, value in values.items()},
            {score.name: score.limit for score in scores},
            {name(row): reason for row, reason in found.verdict.removed.items()},
            {name(row): reason for row, reason in found.verdict.suspected.items()},
            {**admission.refused, **{name(row): why for row, why in found.refused.items()}},
            admission.ignored,
            admission.bounded,
            admission.samples,
            found.notes,
        )

    def remove(self, client: str, reason: str) -> None:
        """Remove a client by somebody's decision: it is out of the pools and of every round to come."""
        self.removed[client] = Reason(BY_HAND, 0.0, 0.0, reason)
        if client in self.roster:
            self._state = self.method.forget(self._state, self.roster.rows([client]))

    def readmit(self, client: str) -> None:
        """Take a removed client back: it comes as a newcomer, and nothing is held against it."""
        del self.removed[client]
        if self.method.judge is not None and client in self.roster:
            self._memory = self.method.judge.forget(self._memory, self.roster.row(client))

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
        reasons = self.removed.values()
        return {
            "round": torch.tensor(self.round),
            "removed.clients": names_to_tensor(list(self.removed)),
            "removed.scores": names_to_tensor([reason.score for reason in reasons]),
            "removed.sentences": names_to_tensor([reason.sentence for reason in reasons]),
            "removed.values": torch.tensor([[r.value, r.limit] for r in reasons], dtype=torch.float64),
            **under("state", state),
            **under("detection", self._memory),
            **under("roster", self.roster.tensors()),
        }

    def restore(self, tensors: Tensors) -> None:
        """Go back to what `tensors` returned; a round under way is forgotten."""
        self._opening = self._serving = None
        self.round = int(tensors["round"])
        self.roster.restore(owned("roster", tensors))
        clients, scores, sentences = (
            tensor_to_names(tensors[f"removed.{what}"]) for what in ("clients", "scores", "sentences")
        )
        values = tensors["removed.values"].tolist()
        self.removed = {
            client: Reason(score, value, limit, sentence)
            for client, score, sentence, (value, limit) in zip(
                clients, scores, sentences, values, strict=True
            )
        }
        self._memory = owned("detection", tensors)
        saved = owned("state", tensors)
        devices = {part.name: getattr(self._state, part.name).device for part in fields(self._state)}
        for part in fields(self._state):
            if part.name not in saved and part.default_factory is not MISSING:
                del devices[part.name]  # there was no such field when the state was saved
        self._state = self.method.state_type(**{name: saved[name].to(devices[name]) for name in devices})
