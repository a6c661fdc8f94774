"""The server of a federation, which drives any method.

It holds the method's state and the detectors' memory, numbers the rounds, validates what clients send, and
knows which clients were removed. The simulation drives it with workers on this machine, a federation with
sites elsewhere. A round is

    sent    = server.begin(clients)       which models go to which clients, or which clients are asked first
    sent    = server.supply(requests)     only if `sent.pending` names clients that are asked for an update
    outcome = server.finish(uploads)      which uploads did not count, which clients are removed, and why

A round is open from `begin` to `finish` or `cancel`. Clients have names here. Methods know them by their rows
in the client index, and so does `Sent`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from fedcap.detection import Accusation, RoundView, Verdict
from fedcap.matrix import finite_rows
from fedcap.methods.base import Inspection, Method, Sent
from fedcap.rng import derive
from fedcap.server.index import ClientIndex
from fedcap.server.uploads import Upload, Validated, is_valid, validate
from fedcap.state import Tensors, names_to_tensor, owned, tensor_to_names, under
from fedcap.training import Layout

BY_HAND = "by hand"
"""The name of the score of an accusation by which an operator removed a client."""


@dataclass(frozen=True)
class RoundOutcome:
    """What the server found in a round, by the names of clients."""

    round: int
    scores: Mapping[str, Mapping[str, float]]
    """By score, each client's value; the score `norm` is always there."""
    limits: Mapping[str, float]
    """The limit of each score that was judged."""
    removed: Mapping[str, Accusation]
    """The clients that are removed for good, and why."""
    suspected: Mapping[str, Accusation]
    """The clients that are accused and not removed; they are among the rejected."""
    rejected: Mapping[str, str]
    """The clients whose upload did not count in this round, and why."""
    ignored: Sequence[tuple[str, str]]
    """What came in addition to an upload that counts, as (client, why): late, repeated."""
    capped: Mapping[str, str]
    """The clients whose claimed sample count was reduced, and how."""
    samples: Mapping[str, int]
    """The number of training samples that each client claimed."""
    notes: Sequence[str]
    """Where the method departed from its settings, such as another rule for too few rows."""


class Server:
    """A method's state, its round, its client index, and the clients that were removed."""

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
        self.clients = ClientIndex(clients)
        self.round = 0
        """The number of the current round, or of the last one; 0 before the first."""
        self.removed: dict[str, Accusation] = {}
        """The clients that are removed for good, and why."""
        self._state: Any = method.init(weights.clone(), layout)
        self._memory: Tensors = method.defence.start() if method.defence else {}
        self._size = layout.size
        self._seed = seed
        self._assumed_malicious = malicious
        """The share of participants that is assumed to be malicious."""
        self._device = weights.device
        self._participants: list[str] = []
        self._sent: Sent | None = None
        """What was sent in the current round; None between rounds."""

    def select(self, participation: float, clients: Sequence[str] | None = None) -> list[str]:
        """Draw the participants of the next round among the clients that are not removed.

        They are drawn from all clients of the index, or from those given, whose order has no effect.
        """
        if clients is None:
            left = torch.ones(len(self.clients), dtype=torch.bool)
            left[self.clients.rows([client for client in self.removed if client in self.clients])] = False
            rows = left.nonzero().flatten()
            return self.clients.names(rows[self._draw(participation, len(left), len(rows))])
        available = self.clients.sorted(client for client in clients if client not in self.removed)
        return [available[at] for at in self._draw(participation, len(clients), len(available)).tolist()]

    def _draw(self, participation: float, total: int, available: int) -> Tensor:
        """Return the indices of the available clients that take part, ascending.

        Their number is a share of the total, at least 1 and at most all that are available.
        """
        count = max(1, round(participation * total))
        if count >= available:
            return torch.arange(available)
        order = torch.randperm(available, generator=derive(self._seed, "select", self.round + 1))
        return order[:count].sort().values

    def begin(self, clients: Sequence[str]) -> Sent:
        """Begin a new round with these clients; new ones are added, removed ones are left out.

        An open round is abandoned: its number is not used again, and answers to it are late.
        """
        left = dict.fromkeys(client for client in clients if client not in self.removed)
        self._participants = self.clients.sorted(left)
        for client in self._participants:
            self.clients.add(client)
        sent = self.models_for(self._participants)
        self.round += 1
        self._sent = sent
        return sent

    def supply(self, requests: Sequence[Upload]) -> Sent:
        """Return the models of this round, given the updates of the clients that were pending."""
        if self._sent is None:
            raise RuntimeError("no round has begun: call begin first")
        self._sent = self.models_for(self._participants, requests)
        return self._sent

    def models_for(self, clients: Sequence[str], requests: Sequence[Upload] | None = None) -> Sent:
        """Return what these clients would be sent now; nothing changes.

        If some are pending, call it again with their requests, which answer the current round.
        """
        rejected = dict.fromkeys((client for client in clients if client in self.removed), "was removed")
        ids = self.clients.rows([client for client in clients if client not in self.removed])
        sent = self.method.send(self._state, ids)
        if requests is not None and len(sent.pending):
            sent, refused = self._models_for_newcomers(ids, sent.pending, requests)
            rejected |= refused
        sent.rejected = rejected
        return sent

    def _models_for_newcomers(
        self, ids: Tensor, pending: Tensor, requests: Sequence[Upload]
    ) -> tuple[Sent, dict[str, str]]:
        """Return the models for clients whose requests are valid, and why the others have none."""
        rows = dict(zip(self.clients.names(pending), pending.tolist(), strict=True))
        valid = validate(requests, self.round, rows, self._size, device=self._device)
        finite = valid.batch.only(finite_rows(valid.batch.updates))
        found = dict(zip(finite.ids.tolist(), finite.updates, strict=True))
        why = dict.fromkeys(rows, "did not come")
        why |= dict.fromkeys(self.clients.names(valid.batch.ids), "not finite")
        why |= {client: reason for client, reason in valid.rejected.items() if client in rows}
        rejected = {client: f"request {why[client]}" for client, row in rows.items() if row not in found}
        return self.method.send(self._state, ids, found), rejected

    def finish(
        self, uploads: Sequence[Upload], root: Tensor | None = None, buffer: Tensor | None = None
    ) -> RoundOutcome:
        """End the round with the uploads, and update the state.

        `root` is the update trained on the server's root set. `buffer`, N×D, may hold the updates already, in
        the order of the participants. This call may overwrite the buffer and the models that were sent.
        Uploads of clients that the operator removed during the round do not count. After an error the state
        is unchanged, and the round can be cancelled.
        """
        sent = self._open_round()
        valid = self._validate(sent, uploads, buffer)
        batch = replace(valid.batch, root=root)
        view = self.method.view(self._state, sent, batch)
        verdict, memory = Verdict(), self._memory
        if self.method.defence is not None:
            verdict, memory = self.method.defence(view, memory)
        state = self.method.update(self._state, sent, view, verdict)
        outcome = self._outcome(sent, valid, view, verdict)
        self._state, self._memory, self._sent = state, memory, None
        self.removed |= outcome.removed
        return outcome

    def _open_round(self) -> Sent:
        """Return what was sent in the open round; raise if there is none or its models are not sent yet."""
        if self._sent is None or len(self._sent.pending):
            raise RuntimeError("no round is under way: call begin, and supply if clients are pending")
        return self._sent

    def _validate(self, sent: Sent, uploads: Sequence[Upload], buffer: Tensor | None) -> Validated:
        """Validate the uploads; leave out those of clients that were removed during the round."""
        rows = dict(zip(self.clients.names(sent.ids), sent.ids.tolist(), strict=True))
        assumed = int(self._assumed_malicious * len(rows) + 1e-9)  # 0.29 · 100 is 28.999…
        received = uploads if self.method.shares else []
        valid = validate(received, self.round, rows, self._size, sent.feedback, assumed, self._device, buffer)
        removed = [client for client in rows if client in self.removed]
        if not removed:
            return valid
        mask = ~torch.isin(valid.batch.ids, self.clients.rows(removed))
        rejected = {**valid.rejected, **dict.fromkeys(removed, "was removed")}
        return valid._replace(batch=valid.batch.only(mask), rejected=rejected)

    def _outcome(self, sent: Sent, valid: Validated, view: RoundView, verdict: Verdict) -> RoundOutcome:
        """Return what was found in the round, by the names of clients."""
        name, view_names = self.clients.name, self.clients.names(view.ids)
        values = {"norm": view.norms, **{score.name: score.values for score in verdict.scores}}
        uncounted = dict.fromkeys(view.ids[~view.finite].tolist(), "not finite")
        uncounted |= {row: accusation.sentence for row, accusation in verdict.suspected.items()}
        rejected = {name(row): why for row, why in uncounted.items() if row not in verdict.removed}
        return RoundOutcome(
            round=self.round,
            scores={
                score: dict(zip(view_names, value.tolist(), strict=True)) for score, value in values.items()
            },
            limits={score.name: score.limit for score in verdict.scores},
            removed={name(row): accusation for row, accusation in verdict.removed.items()},
            suspected={name(row): accusation for row, accusation in verdict.suspected.items()},
            rejected={**valid.rejected, **rejected, **sent.rejected},
            ignored=valid.ignored,
            capped=valid.capped,
            samples=valid.samples,
            notes=[*verdict.notes, *view.notes],
        )

    def preview(
        self, uploads: Sequence[Upload], root: Tensor | None = None, buffer: Tensor | None = None
    ) -> tuple[RoundOutcome, Sent]:
        """Return how the round would end with these uploads, and what would then be sent; nothing changes."""
        sent = self._open_round()
        copied = self.snapshot()
        copied._sent = replace(sent, is_fresh=False)
        all_valid = all(is_valid(upload, self._size, sent.feedback) for upload in uploads)
        outcome = copied.finish(uploads, root, buffer if all_valid else None)
        return outcome, copied.models_for(self.clients.names(sent.ids), requests=())

    def snapshot(self) -> Server:
        """Return a copy with the current state, without the open round.

        Both share the tensors of the state, because each step makes a new state and changes no tensor of the
        old one. They also share the client index.
        """
        copied = copy(self)
        copied.removed = dict(self.removed)
        copied._sent = None
        return copied

    def cancel(self) -> None:
        """Cancel the open round: it does not count, and the next round gets the same number.

        A driver must tell answers to the two rounds apart. The federation has a nonce in each message.
        """
        if self._sent is None:
            raise RuntimeError("no round is under way: there is none to cancel")
        self.round -= 1
        self._sent = None

    def remove(self, client: str, reason: str) -> None:
        """Remove a client, as the operator decided, from the state and from all future rounds."""
        self.removed[client] = Accusation(BY_HAND, 0.0, 0.0, reason)
        if client in self.clients:
            self._state = self.method.forget(self._state, self.clients.rows([client]))

    def readmit(self, client: str) -> None:
        """Let a removed client take part again, as a newcomer that the detectors do not remember."""
        self.removed.pop(client, None)
        if self.method.defence is not None and client in self.clients:
            self._memory = self.method.defence.forget(self._memory, self.clients.row(client))

    def inspect(self) -> Inspection:
        """Return the models that the server holds."""
        return self.method.inspect(self._state)

    @property
    def limits(self) -> Mapping[str, float]:
        """The fixed limits of scores, by the names of the scores."""
        return {} if self.method.defence is None else self.method.defence.limits

    def state_dict(self) -> dict[str, Tensor]:
        """Return all that the server remembers between two rounds, to be saved."""
        state = {part.name: getattr(self._state, part.name) for part in fields(self._state)}
        accusations = self.removed.values()
        return {
            "round": torch.tensor(self.round),
            "removed.clients": names_to_tensor(list(self.removed)),
            "removed.scores": names_to_tensor([accusation.score for accusation in accusations]),
            "removed.sentences": names_to_tensor([accusation.sentence for accusation in accusations]),
            "removed.values": torch.tensor([[a.value, a.limit] for a in accusations], dtype=torch.float64),
            **under("state", state),
            **under("detection", self._memory),
            **under("roster", self.clients.state_dict()),
        }

    def load_state_dict(self, tensors: Tensors) -> None:
        """Restore what `state_dict` returned; an open round is dropped."""
        self._sent = None
        self.round = int(tensors["round"])
        self.clients.load_state_dict(owned("roster", tensors))
        clients, scores, sentences = (
            tensor_to_names(tensors[f"removed.{what}"]) for what in ("clients", "scores", "sentences")
        )
        values = tensors["removed.values"].tolist()
        self.removed = {
            client: Accusation(score, value, limit, sentence)
            for client, score, sentence, (value, limit) in zip(
                clients, scores, sentences, values, strict=True
            )
        }
        self._memory = owned("detection", tensors)
        saved, restored = owned("state", tensors), {}
        for part in fields(self._state):
            # A state that an older version saved may lack fields with a default.
            if part.name in saved or part.default_factory is MISSING:
                restored[part.name] = saved[part.name].to(getattr(self._state, part.name).device)
        self._state = type(self._state)(**restored)
