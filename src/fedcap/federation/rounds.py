"""The server of a federation: it plays the rounds of a plan with the connected sites.

It drives the same `Server` as the simulation. A round counts once it is on disk; after a crash, the conductor
continues with the next round. The operator's changes in the ledger hold from the next round on. No site can
stop a round: its answers are checked, and they are counted, refused or bounded, and recorded.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from fedcap.errors import InputError, plural
from fedcap.federation.audit import Audit
from fedcap.federation.build import Built
from fedcap.federation.ledger import SERVER, Ledger, LedgerEntry, State
from fedcap.federation.messages import WISHES, Answer, Failure, Kind, Order, Reply, Transport, fresh_nonce
from fedcap.federation.plan import Plan
from fedcap.federation.run_files import RunFiles, mean_shares, reported_accuracy
from fedcap.methods.base import Sent
from fedcap.runs import (
    History,
    Mixing,
    Reason,
    RoundRecord,
    RunDirectory,
    Seconds,
    mass_removal,
    outcome_fields,
)
from fedcap.server.server import BY_HAND, RoundOutcome, Server
from fedcap.server.uploads import Upload
from fedcap.state import Samples
from fedcap.training import single_thread

LOG = logging.getLogger("fedcap")
HELLO_SECONDS = 30.0
"""The longest time that the server waits for an answer to a hello, for which a site does no work."""
FAILED_WISHES = 3
"""How often a newcomer may ask for a model and then not answer: each time, all sites wait for the
deadline."""
BY_HAND_ROUNDS = 2
"""By how many rounds at most a removal by hand is in the ledger before it is in the record of a round."""


class Conductor:
    """Plays the rounds of a plan: `with Conductor(…) as conductor: conductor.run()`."""

    def __init__(
        self,
        plan: Plan,
        run: Path | str,
        ledger: Ledger,
        transport: Transport,
        root: Samples | None = None,
    ) -> None:
        self.plan = plan
        self.ledger = ledger
        self.audit = ledger.audit
        self.history = History()
        self._directory = RunDirectory(run)
        self._files = RunFiles(self._directory, plan)
        self._transport = transport
        self._root = root
        self._built = Built.of(plan)
        method = self._built.method
        if method.root_samples and root is None:
            raise InputError(
                f"method {plan.method.name} needs clean samples of the operator:"
                " name a data set in federation.toml, as [root]",
                code="no-root",
                field="root",
            )
        self.server = Server(method, self._built.weights, self._built.layout, plan.seed, plan.assumed)
        self._by_hand: dict[str, Reason] = {}
        """The clients that the operator removed since the last round that counts."""
        self._failed_wishes: Counter[str] = Counter()
        self._informed: set[str] = set()
        """The clients online that were sent that all rounds are done."""
        self._notes: list[str] = []
        """What the record of the next round will say about the operator's decisions."""

    def __enter__(self) -> Self:
        """Lock the run's directory, and restore the server from the last round that counts."""
        self._directory.__enter__()
        try:
            self.history = self._files.open(self.server)
            catch_up(self.ledger, self.history, self.server.removed)
            event = "restarted" if self.history else "started"
            self.audit.write(event, round=len(self.history), by=SERVER, plan=self.plan.digest)
        except BaseException:
            self._directory.__exit__()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        reason = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else None
        try:
            self.audit.write("stopped", round=len(self.history), by=SERVER, reason=reason)
        finally:
            self._directory.__exit__()

    @property
    def is_finished(self) -> bool:
        """Whether all rounds of the plan count."""
        return len(self.history) >= self.plan.rounds

    def run(self, report: Callable[[RoundRecord | None], None] = lambda _: None, pause: float = 1.0) -> None:
        """Play the rounds that are left; report the record of each, and none where a round was not played."""
        while not self.is_finished:
            record = self.play()
            report(record)
            if record is None:
                time.sleep(pause)
        self.inform()
        if self._files.finish(self.history, self.server):
            self.audit.write("finished", round=len(self.history), by=SERVER)

    def play(self) -> RoundRecord | None:
        """Play the next round; return its record, or none if too few sites are connected or answer."""
        if self.server.round != len(self.history):
            raise RuntimeError("the last round could not be written: start the conductor again")
        began = time.perf_counter()
        self._follow_ledger()
        wishing = self.welcome()
        available = [k for k, entry in self._connected().items() if entry.allowed and k not in wishing]
        if len(available) < self.plan.least:
            LOG.info("%s connected, %s needed", plural(len(available), "site"), self.plan.least)
            return None
        share = max(self.plan.participation, self.plan.least / len(available))
        with single_thread():
            sent = self.server.begin(self.server.select(share, available))
        try:
            return self._play(sent, began)
        except BaseException:
            with suppress(RuntimeError):  # the round may be finished
                self.server.cancel()
            raise

    def _play(self, sent: Sent, began: float) -> RoundRecord | None:
        """Play a round that has begun."""
        server, start = self.server, sent.start
        pending = server.clients.names(sent.pending)
        asked = self._collect("request", {k: _one(start) for k in pending})
        with single_thread():
            if pending:
                sent = server.supply(asked.uploads())
            clients = server.clients.names(sent.ids)
            models = models_by_client(sent, clients)
            mixing = Mixing.of(server.round, clients, server.clients.names(sent.pool), sent.mixing)
            entropy = sent.mixing_entropy
        trained = self._collect("train", models)
        failed = {**asked.failed, **trained.failed}
        if len(trained.answers) < self.plan.least:
            self._cancel(len(clients) + len(sent.rejected), failed, len(trained.answers))
            return None
        with single_thread():
            root = None
            if self._root is not None and server.method.root_samples and start is not None:
                root = self._built.runner.root_update(self._root, server.round, start)
            outcome = server.finish(trained.uploads(), root)
        seconds, waited = time.perf_counter() - began, asked.seconds + trained.seconds
        fields = outcome_fields(outcome)
        uncounted = {*outcome.removed, *outcome.rejected}
        counted = {client: answer for client, answer in trained.answers.items() if client not in uncounted}
        record = RoundRecord(
            round=outcome.round,
            participants=list(clients),
            asked=list(pending),
            accuracy=reported_accuracy(counted, server.method.shares),
            weights_entropy=entropy,
            attack=None,
            diverged=[],
            bytes=asked.bytes + trained.bytes,
            seconds=Seconds(train=waited, server=seconds - waited, total=seconds),
            **{**fields, "refused": {**fields["refused"], **failed}},
        )
        crowd = mass_removal(record)
        if crowd is not None:
            LOG.warning(crowd)
        notes = [*self._notes, *record.notes, *([crowd] if crowd else [])]
        record = replace(record, notes=notes, removed={**self._by_hand, **record.removed})
        self._files.close_round(record, self.server, mixing)
        self.history.append(record)
        self._by_hand, self._notes = {}, []
        note_round(self.ledger, record, outcome, mean_shares(mixing))
        return record

    def welcome(self) -> set[str]:
        """Give a model to each connected newcomer that asks for one instead of taking part.

        Return the newcomers that ask for one.
        """
        if not self.server.round or not self.server.method.shares:
            return set()
        self._follow_ledger()
        newcomers = {
            client: entry
            for client, entry in self._connected().items()
            if client in self.server.clients
            and entry.state == State.APPROVED
            and entry.customised < self.plan.customised
            and self._failed_wishes[client] < FAILED_WISHES
        }
        greeted = self._collect("hello", dict.fromkeys(newcomers, torch.empty(0, self.plan.weights)))
        wishing = {k for k, answer in greeted.answers.items() if answer.feedback == WISHES}
        for client in sorted(wishing):
            why = self._customise(client)
            if why is not None:
                self._failed_wishes[client] += 1
                LOG.warning("no model for %s: %s", newcomers[client].name, why)
                self.audit.write("refused", client=client, round=self.server.round, by=SERVER, reason=why)
        return wishing

    def inform(self) -> None:
        """Send each client online, once, that all rounds are done."""
        online = {client for client, entry in self._connected().items() if entry.allowed}
        new = sorted(online - self._informed)
        self._collect("finished", dict.fromkeys(new, torch.empty(0, self.plan.weights)))
        self._informed = online

    def _customise(self, client: str) -> str | None:
        """Give a newcomer a model made for it; return why it has none, or none if it has one.

        The newcomer trains once, and takes part in no round: the paper's Appendix A. On the server only the
        count of such models changes. The plan bounds it, because each model reveals something about the sites
        most similar to it.
        """
        server = self.server
        with single_thread():
            sent = server.models_for([client])
        asked = self._collect("request", {client: _one(sent.start)} if len(sent.pending) else {})
        with single_thread():
            sent = server.models_for([client], asked.uploads()) if len(sent.pending) else sent
            models = models_by_client(sent, server.clients.names(sent.ids))
        refused: Mapping[str, str] = {**sent.rejected, **asked.failed}
        if client not in refused:
            if not self.ledger.count_customised(client, self.plan.customised):
                return "it may have no more"
            refused = self._collect("customise", models).failed
        return refused.get(client)

    def _connected(self) -> dict[str, LedgerEntry]:
        """Return the clients of the ledger that are online."""
        nodes = self._transport.nodes()
        return {client: entry for client, entry in self.ledger.entries().items() if client in nodes}

    def _collect(self, kind: Kind, models: Mapping[str, Tensor]) -> Collected:
        seconds = min(self.plan.deadline, HELLO_SECONDS) if kind == "hello" else self.plan.deadline
        return collect(self._transport, self.plan, kind, self.server.round, models, seconds)

    def _cancel(self, asked: int, failed: Mapping[str, str], answered: int) -> None:
        """Cancel the round: it does not count, and is played again."""
        number = self.server.round
        self.server.cancel()
        reason = f"{answered} of {plural(asked, 'site')} answered, {self.plan.least} are needed"
        each = "; ".join(f"{client} {why}" for client, why in failed.items())
        LOG.warning("round %s given up: %s: %s", number, reason, each)
        self.audit.write("given-up", round=number, by=SERVER, reason=reason, failed=dict(failed))

    def _follow_ledger(self) -> None:
        """Apply the operator's changes in the ledger to the server."""
        for client, entry in self.ledger.entries().items():
            if entry.allowed:  # rows are in the ledger's order, whenever a client connects
                self.server.clients.add(client)
            is_out = client in self.server.removed
            reason = entry.changes[-1].reason
            if is_out and entry.allowed:
                self.server.readmit(client)
                self._by_hand.pop(client, None)
                self._notes.append(f"{client} was readmitted: {reason}")
            elif entry.state == State.REMOVED and not is_out and client in self.server.clients:
                self.server.remove(client, reason)
                self._by_hand[client] = Reason(BY_HAND, None, None, reason)


def _one(model: Tensor | None) -> Tensor:
    """Return a model, D, as a matrix of one row; pending clients always have one."""
    assert model is not None
    return model[None]


def models_by_client(sent: Sent, clients: Sequence[str]) -> dict[str, Tensor]:
    """Return the models, k×D, for each client; clients with the same models share a tensor."""
    rows = dict(zip(clients, map(tuple, sent.index.tolist()), strict=True))
    made = {places: sent.models[list(places)].cpu() for places in set(rows.values())}
    return {client: made[places] for client, places in rows.items()}


# --- One exchange with the sites


@dataclass(frozen=True)
class Collected:
    """The replies to the orders of one exchange."""

    answers: Mapping[str, Answer]
    """The replies that answer their order; their content is not checked."""
    failed: Mapping[str, str]
    """The clients without such an answer, and why."""
    bytes: int
    """The size of all models and updates that were sent."""
    seconds: float

    def uploads(self) -> list[Upload]:
        """Return the answers in the server's form."""
        return [
            Upload(
                client,
                answer.round,
                None if answer.update is None else torch.from_numpy(answer.update),
                answer.samples,
                torch.tensor(answer.feedback),
            )
            for client, answer in self.answers.items()
        ]


def collect(
    transport: Transport, plan: Plan, kind: Kind, number: int, models: Mapping[str, Tensor], seconds: float
) -> Collected:
    """Send each client its models, k×D, with an order of this kind, and wait `seconds` for the answers."""
    began = time.perf_counter()
    orders = {
        client: Order(kind, number, fresh_nonce(), plan.digest, own.numpy()) for client, own in models.items()
    }
    replies = transport.exchange(orders, seconds) if orders else {}
    answers, failed = dict[str, Answer](), dict[str, str]()
    for client, order in orders.items():
        reply = replies.get(client, Failure(f"did not answer within {seconds:g} s"))
        fault = _fault(order, reply, plan)
        if fault is None and isinstance(reply, Answer):
            answers[client] = reply
        else:
            failed[client] = fault or ""
    sent = sum(order.models.nbytes for order in orders.values())
    received = sum(answer.update.nbytes for answer in answers.values() if answer.update is not None)
    return Collected(answers, failed, sent + received, time.perf_counter() - began)


def _fault(order: Order, reply: Reply, plan: Plan) -> str | None:
    """Return why a reply does not answer its order, or none if it does."""
    if isinstance(reply, Failure):
        return reply.why
    if reply.nonce != order.nonce:
        return "answers another order than the one it was sent"
    if reply.refused is not None:
        return f"refuses: {reply.refused}"
    if reply.round != order.round:
        return f"answers round {reply.round}, this is round {order.round}"
    if reply.update is not None and reply.update.nbytes > plan.most_bytes:
        return f"sent {reply.update.nbytes:,} bytes, more than the {plan.most_bytes:,} of an answer"
    return None


# --- The ledger and the audit after a round


def note_round(
    ledger: Ledger, record: RoundRecord, outcome: RoundOutcome, weights: Mapping[str, float] | None = None
) -> None:
    """Record a round that is on disk in the ledger and the audit.

    `weights` are the clients' mean shares in the models that were sent.
    """
    for client, reason in record.removed.items():
        if reason.score != BY_HAND:
            with suppress(InputError):  # the operator may have removed it before, or edited the file
                ledger.remove(client, reason.sentence, record.round, reason.value)
    states = {client: entry.state for client, entry in ledger.entries().items()}
    for client in record.participants:
        with suppress(InputError):  # the operator may have removed it in the meantime
            if client in outcome.suspected:
                why = outcome.suspected[client]
                ledger.suspect(client, record.round, why.value, why.sentence)
            elif client not in {**record.refused, **record.removed} and (
                states.get(client) in (State.APPROVED, State.PROBATION)
            ):
                ledger.activate(client, record.round)
    _write_events(ledger.audit, record, weights)


def _write_events(audit: Audit, record: RoundRecord, weights: Mapping[str, float] | None = None) -> None:
    """Write to the audit what was refused and bounded in a round, and then that it counts."""
    number = record.round
    for client, why in record.refused.items():
        audit.write("refused", client=client, round=number, by=SERVER, reason=why)
    for client, why in record.bounded.items():
        audit.write("bounded", client=client, round=number, by=SERVER, reason=why)
    accuracy = None if record.accuracy is None else round(record.accuracy.best, 1)
    participants = list(record.participants)
    audit.write(
        "round", round=number, by=SERVER, participants=participants, accuracy=accuracy, weights=weights
    )


def catch_up(ledger: Ledger, history: Sequence[RoundRecord], removed: Iterable[str]) -> None:
    """Remove the clients from the ledger that the server has removed, unless they were readmitted since.

    The ledger does not have a removal if the server was killed before it wrote it, or if the file is an older
    copy; the server would then readmit the client. The audit gets the last round's events if it has none.
    """
    last = {client: (record.round, reason) for record in history for client, reason in record.removed.items()}
    entries = ledger.entries()
    for client in removed:
        if client in last and client in entries and entries[client].allowed:
            number, reason = last[client]
            known = [change.round for change in entries[client].changes if change.state == State.REMOVED]
            if all(at is not None and at < number - BY_HAND_ROUNDS for at in known):
                ledger.remove(client, reason.sentence, number, reason.value)
    noted = {event.round for event in ledger.audit.events() if event.event == "round"}
    if history and history[-1].round not in noted:
        _write_events(ledger.audit, history[-1])
