"""The server of a federation: it plays the rounds of a plan with the sites that are there.

It drives the very `Server` that the simulation drives. A round counts once it is on disk; started again after
a crash, the conductor goes on with the next one. What the operator changes in the ledger holds from the next
round on. No site can stop a round: what it sends is checked, and counted, refused or bounded, and told.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from fedcap.errors import InputError, plural
from fedcap.federation.accounts import catch_up, note_round
from fedcap.federation.books import Books
from fedcap.federation.building import Built
from fedcap.federation.collecting import Collected, collect, models_by_client
from fedcap.federation.ledger import SERVER, Ledger, LedgerEntry, State
from fedcap.federation.messages import WISHES, Answer, Kind
from fedcap.federation.plan import Plan
from fedcap.federation.recording import mean_shares, record_of
from fedcap.federation.transport import Transport
from fedcap.methods.base import Sent
from fedcap.runs import Mixing, Reason, RoundRecord, RunDirectory, mass_removal
from fedcap.server.server import BY_HAND, Server
from fedcap.state import Samples
from fedcap.training import single_thread

LOG = logging.getLogger("fedcap")
MOST_HELLO = 30.0
"""How many seconds at most a site is waited for that need not work for its answer."""

MOST_VAIN = 3
"""How often that may happen until the server starts again: each time, everybody waits for the deadline."""


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
        self.history: list[RoundRecord] = []
        self._directory = RunDirectory(run)
        self._books = Books(self._directory, plan)
        self._transport = transport
        self._root = root
        self._built = Built.of(plan)
        method = self._built.method
        if method.root_samples and root is None:
            raise InputError(
                f"method {plan.method.name} needs clean samples of the operator's own:"
                " name a data set in federation.toml, as [root]"
            )
        self.server = Server(method, self._built.weights, self._built.layout, plan.seed, plan.assumed)
        self._by_hand: dict[str, Reason] = {}
        """Who was removed by hand since the last round that counts."""
        self._vain: Counter[str] = Counter()
        """How often a newcomer wished for a model and then did not do its part."""
        self._notes: list[str] = []
        """What the record of the next round will say of the operator's decisions."""

    def __enter__(self) -> Self:
        """Lock the run's directory, and go back to where the last round that counts left the server."""
        self._directory.__enter__()
        try:
            self.history = self._books.open(self.server)
            catch_up(self.ledger, self.history, self.server.removed)
            event = "restarted" if self.history else "started"
            self.audit.write(event, round=len(self.history), by=SERVER, plan=self.plan.digest)
        except BaseException:
            self._directory.__exit__()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        reason = None if kind is None else f"{kind.__name__}: {error}"
        try:
            self.audit.write("stopped", round=len(self.history), by=SERVER, reason=reason)
        finally:
            self._directory.__exit__()

    @property
    def finished(self) -> bool:
        """Whether all rounds of the plan count."""
        return len(self.history) >= self.plan.rounds

    def run(self, between: Callable[[Conductor], None] = lambda _: None, pause: float = 1.0) -> None:
        """Play the rounds that are left. Call `between` after each, and each time a round was not played."""
        while not self.finished:
            if self.play() is None:
                time.sleep(pause)
            between(self)
        if self._books.finish(self.history, self.server):
            self.audit.write("finished", round=len(self.history), by=SERVER)

    def play(self) -> RoundRecord | None:
        """Play the next round; return its record, or none if too few sites are there or have answered."""
        if self.server.round != len(self.history):
            raise RuntimeError("the last round could not be written down: start the conductor again")
        began = time.perf_counter()
        self._follow_ledger()
        wishing = self.welcome()
        there = [k for k, entry in self._there().items() if entry.allowed and k not in wishing]
        if len(there) < self.plan.least:
            LOG.info("%s here, %s needed", plural(len(there), "site"), self.plan.least)
            return None
        share = max(self.plan.participation, self.plan.least / len(there))
        with single_thread():
            sent = self.server.begin(self.server.select(there, share))
        try:
            return self._played(sent, began)
        except BaseException:
            with suppress(RuntimeError):  # the round may be finished
                self.server.cancel()
            raise

    def _played(self, sent: Sent, began: float) -> RoundRecord | None:
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
        if len(trained.answers) < self.plan.least:
            self._cancel([*clients, *sent.rejected], {**asked.failed, **trained.failed}, len(trained.answers))
            return None
        with single_thread():
            root = None
            if self._root is not None and server.method.root_samples and start is not None:
                root = self._built.runner.root_update(self._root, server.round, start)
            outcome = server.finish(trained.uploads(), root)
        seconds = time.perf_counter() - began
        record = record_of(clients, pending, entropy, asked, trained, outcome, seconds, server.method.shares)
        crowd = mass_removal(record)
        if crowd is not None:
            LOG.warning(crowd)
        notes = [*self._notes, *record.notes, *([crowd] if crowd else [])]
        record = replace(record, notes=notes, removed={**self._by_hand, **record.removed})
        self._books.close_round(record, self.server, mixing)
        self.history.append(record)
        self._by_hand, self._notes = {}, []
        note_round(self.ledger, record, outcome, mean_shares(mixing))
        return record

    def welcome(self) -> set[str]:
        """Give a model to every newcomer that is there and wishes for one instead of taking part.

        Return who wishes for one.
        """
        if not self.server.round or not self.server.method.shares:
            return set()
        new = [
            client
            for client, entry in self._there().items()
            if entry.state == State.APPROVED
            and entry.customised < self.plan.customised
            and self._vain[client] < MOST_VAIN
        ]
        greeted = self._collect("hello", dict.fromkeys(new, torch.empty(0, self.plan.weights)))
        wishing = {k for k, answer in greeted.answers.items() if answer.extra == WISHES}
        for client in sorted(wishing):
            try:
                self.customise(client)
            except InputError as error:
                self._vain[client] += 1
                LOG.warning("%s", error)
        return wishing

    def customise(self, client: str) -> Answer:
        """Give a site a model made for it, for which it trains once and takes part in no round.

        That is the paper's Appendix A. On the server nothing changes but the count of such models, which the
        plan bounds: each tells the site something about those most like it.
        """
        self._follow_ledger()
        server, entry = self.server, self.ledger.entries().get(client)
        if entry is None or not entry.allowed:
            raise InputError(f"{client} may not take part: approve or readmit it first")
        if not server.method.shares or not server.round:
            raise InputError(f"there is no model for {entry.name}: nothing was learnt together yet")
        if entry.customised >= self.plan.customised:
            raise InputError(
                f"{entry.name} was given {plural(entry.customised, 'model')} already: the plan has no more"
            )
        if client not in self._transport.nodes():
            raise InputError(f"{entry.name} is not online: start its site first")
        with single_thread():
            sent = server.models_for([client])
        asked = self._collect("request", {client: _one(sent.start)} if len(sent.pending) else {})
        with single_thread():
            sent = server.models_for([client], asked.uploads()) if len(sent.pending) else sent
            models = models_by_client(sent, server.clients.names(sent.ids))
        refused: Mapping[str, str] = {**sent.rejected, **asked.failed}
        if client not in refused and self.ledger.count_customised(client, self.plan.customised):
            made = self._collect("customise", models)
            if client in made.answers:
                return made.answers[client]
            refused = made.failed
        why = refused.get(client, "it may have no more")
        self.audit.write("refused", client=client, round=server.round, by=SERVER, reason=why)
        raise InputError(f"no model for {entry.name}: {why}")

    def _there(self) -> dict[str, LedgerEntry]:
        """Return the clients of the ledger that are online."""
        nodes = self._transport.nodes()
        return {client: entry for client, entry in self.ledger.entries().items() if client in nodes}

    def _collect(self, kind: Kind, models: Mapping[str, Tensor]) -> Collected:
        seconds = min(self.plan.deadline, MOST_HELLO) if kind == "hello" else self.plan.deadline
        return collect(self._transport, self.plan, kind, self.server.round, models, seconds)

    def _cancel(self, clients: Sequence[str], failed: Mapping[str, str], answered: int) -> None:
        """Cancel the round: it does not count, and is played again."""
        number = self.server.round
        self.server.cancel()
        each = "; ".join(f"{client} {why}" for client, why in failed.items())
        reason = f"{answered} of {plural(len(clients), 'site')} answered, {self.plan.least} are needed"
        LOG.warning("round %s given up: %s: %s", number, reason, each)
        self.audit.write("given-up", round=number, by=SERVER, reason=reason, failed=dict(failed))

    def _follow_ledger(self) -> None:
        """Do on the server what the operator did in the ledger."""
        for client, entry in self.ledger.entries().items():
            if entry.allowed:  # rows by the ledger's order, whoever is online when
                self.server.clients.add(client)
            out = client in self.server.removed
            if out and entry.allowed:
                self.server.readmit(client)
                self._by_hand.pop(client, None)
                self._notes.append(f"{client} was taken back: {entry.changes[-1].reason}")
            elif entry.state == State.REMOVED and not out and client in self.server.clients:
                reason = entry.changes[-1].reason
                self.server.remove(client, reason)
                self._by_hand[client] = Reason(BY_HAND, None, None, reason)


def _one(model: Tensor | None) -> Tensor:
    """Return a model, D, as a matrix of one row, for clients that must have one."""
    assert model is not None
    return model[None]
