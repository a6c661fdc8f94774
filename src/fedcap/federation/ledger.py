"""ledger.json: the clients of a federation, the state of each, and when, why and by whom each state was set.

A client is the fingerprint of its public key. Every change is a line of the audit before it is in the ledger.
The running server and the operator's commands both write: each change reads the file again under a lock, and
the server follows the operator's changes at its next round. A removed client stays out until the operator
readmits it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from filelock import FileLock

from fedcap.errors import InputError, nearest
from fedcap.federation.audit import Audit, bounded, now
from fedcap.files import write_aside

LEDGER = "ledger.json"
SERVER, OPERATOR = "server", "operator"
"""Who makes a change."""


class State(StrEnum):
    """The state of a client; the audit's event for a change into a state has the same name."""

    ASKED = "asked"
    """Its request was read, and is not approved."""
    APPROVED = "approved"
    """It may take part, and has not done so since it was approved."""
    ACTIVE = "active"
    """It takes part."""
    PROBATION = "probation"
    """It takes part, and is suspected."""
    REMOVED = "removed"
    """It may not take part."""

    @classmethod
    def _missing_(cls, value: object) -> State | None:
        return cls.APPROVED if value == "enrolled" else None  # the name of this state in older files


ALLOWED = (State.APPROVED, State.ACTIVE, State.PROBATION)


@dataclass(frozen=True)
class Change:
    """A change of a client's state."""

    state: State
    time: str
    by: str
    round: int | None = None
    score: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class LedgerEntry:
    """One client of the ledger."""

    client: str
    """The fingerprint of its public key."""
    name: str
    """Its name for people."""
    key: str
    """Its public key, in OpenSSH format."""
    changes: tuple[Change, ...]
    """At least one; the first is the oldest."""
    customised: int = 0
    """How many models were made for it that it did not train for in a round."""

    @property
    def state(self) -> State:
        """The client's current state."""
        return self.changes[-1].state

    @property
    def allowed(self) -> bool:
        """Whether the client may take part."""
        return self.state in ALLOWED


class Ledger:
    """The clients of one federation, on disk."""

    def __init__(self, path: Path | str, audit: Audit) -> None:
        self.path = Path(path)
        self.audit = audit
        self._lock = FileLock(self.path.with_name(f".{self.path.name}.lock"))

    def entries(self) -> dict[str, LedgerEntry]:
        """Return all clients from the file, in the order in which they asked."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            return {client: _entry(client, facts) for client, facts in content.items()}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror}", code="unreadable") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InputError(f"{self.path} is damaged: restore it from a backup", code="damaged") from None

    def names(self) -> dict[str, str]:
        """Return each client's name for people."""
        return {client: entry.name for client, entry in self.entries().items()}

    def find(self, who: str) -> LedgerEntry:
        """Return the client with this name or fingerprint, or whose fingerprint begins with it."""
        entries = self.entries()
        wanted = who.strip().lower()
        if wanted in entries:  # a fingerprint goes before a name that equals it
            return entries[wanted]
        found = [
            entry
            for entry in entries.values()
            if wanted == entry.name.lower() or (len(wanted) >= 4 and entry.client.startswith(wanted))
        ]
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError(
                f"{len(found)} clients match {bounded(who, 60)!r}: give the whole fingerprint",
                code="ambiguous-client",
            )
        names = nearest(wanted, (entry.name for entry in entries.values()))
        raise InputError(f"no client is called {bounded(who, 60)!r}: {names}", code="unknown-client")

    def ask(self, client: str, name: str, key: str) -> LedgerEntry:
        """Record a site's request to join; a client that is in the ledger already keeps its state."""
        with self._writing() as entries:
            if client in entries:
                return entries[client]
            if any(entry.name.lower() == name.lower() for entry in entries.values()):
                raise InputError(
                    f"another site is called {name!r}: the site must join under another name",
                    code="name-taken",
                    field="name",
                )
            change = Change(State.ASKED, now(), OPERATOR)
            self.audit.write("asked", client=client, by=OPERATOR, name=name)
            entries[client] = LedgerEntry(client, name, key, (change,))
        return entries[client]

    def approve(self, client: str, by: str = OPERATOR, reason: str = "") -> None:
        """Approve a site that has asked."""
        self._change(client, (State.ASKED,), Change(State.APPROVED, now(), by, reason=reason))

    def activate(self, client: str, round: int, by: str = SERVER) -> None:
        """Record that a client took part, or that it is no longer suspected."""
        sources = (State.APPROVED, State.PROBATION)
        self._change(client, sources, Change(State.ACTIVE, now(), by, round))

    def suspect(self, client: str, round: int, score: float, reason: str, by: str = SERVER) -> None:
        """Put a client on probation."""
        self._change(client, ALLOWED, Change(State.PROBATION, now(), by, round, score, bounded(reason)))

    def remove(
        self,
        client: str,
        reason: str,
        round: int | None = None,
        score: float | None = None,
        by: str = SERVER,
    ) -> None:
        """Remove a client, or reject one that asked."""
        sources = (State.ASKED, *ALLOWED)
        self._change(client, sources, Change(State.REMOVED, now(), by, round, score, bounded(reason)))

    def readmit(self, client: str, reason: str, round: int | None = None, by: str = OPERATOR) -> None:
        """Readmit a removed client; it returns as a newcomer."""
        if not reason.strip():
            raise InputError("the reason for readmitting a client is missing", code="missing", field="reason")
        change = Change(State.APPROVED, now(), by, round, reason=bounded(reason))
        self._change(client, (State.REMOVED,), change, "readmitted")

    def count_customised(self, client: str, limit: int) -> bool:
        """Count a model made for a client that asked; return whether it may have one more within `limit`."""
        with self._writing() as entries:
            entry = entries.get(client)
            if entry is None or not entry.allowed or entry.customised >= limit:
                return False
            self.audit.write("customised", client=client, by=SERVER, count=entry.customised + 1, most=limit)
            entries[client] = replace(entry, customised=entry.customised + 1)
        return True

    def _change(
        self, client: str, sources: tuple[State, ...], change: Change, event: str | None = None
    ) -> None:
        """Bring a client from one of the source states into a new one."""
        with self._writing() as entries:
            entry = entries.get(client)
            if entry is None:
                raise InputError(
                    f"no client has the fingerprint {bounded(client, 60)!r}", code="unknown-client"
                )
            if entry.state not in sources:
                raise InputError(f"{entry.name} is {entry.state}, not {' or '.join(sources)}", code="state")
            if entry.state == State.PROBATION and change.state == State.ACTIVE:
                event = "cleared"
            facts = {"name": entry.name} | ({} if change.score is None else {"score": change.score})
            self.audit.write(
                event or change.state,
                client=client,
                round=change.round,
                by=change.by,
                reason=change.reason or None,
                **facts,
            )
            if change.score is not None and not math.isfinite(change.score):
                change = replace(change, score=None)
            entries[client] = replace(entry, changes=(*entry.changes, change))

    @contextmanager
    def _writing(self) -> Iterator[dict[str, LedgerEntry]]:
        """Yield the clients under the lock; write them at the end of the block if it changed them."""
        with self._lock:
            entries = self.entries()
            before = dict(entries)
            yield entries
            if entries != before:
                content = {client: _facts(entry) for client, entry in entries.items()}
                write_aside(self.path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _facts(entry: LedgerEntry) -> dict[str, object]:
    """Return a client for JSON, its state first."""
    facts = asdict(entry)
    del facts["client"]
    return {"state": entry.state, **facts}


def _entry(client: str, facts: Mapping[str, object]) -> LedgerEntry:
    changes: list[Mapping[str, object]] = facts["changes"]  # type: ignore[assignment]
    made = tuple(Change(**{**change, "state": State(str(change["state"]))}) for change in changes)  # type: ignore[arg-type]
    if not made:
        raise ValueError("a client without a state")
    return LedgerEntry(client, str(facts["name"]), str(facts["key"]), made, int(str(facts["customised"])))
