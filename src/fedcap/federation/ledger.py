"""ledger.json: who may take part in a federation, what became of each, when, why and by whom.

A client is the fingerprint of its public key. Every change is a line of the audit before it is in the ledger.
The running server and the operator's commands both write: each change reads the file again under a lock, and
the server sees the operator's at its next round. Whoever is removed stays out until somebody readmits it.
"""

from __future__ import annotations

import fcntl
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from fedcap.errors import InputError, nearest
from fedcap.federation.audit import Audit, bounded, now
from fedcap.files import write_aside

LEDGER = "ledger.json"
SERVER, OPERATOR = "server", "operator"
"""By whom a change was made."""


class State(StrEnum):
    """What a client is to the federation."""

    ASKED = "asked"
    """Its request was read; nobody has approved it."""
    ENROLLED = "enrolled"
    """It may take part, and has not done so since it was taken in."""
    ACTIVE = "active"
    """It takes part."""
    PROBATION = "probation"
    """It takes part, and is suspected."""
    REMOVED = "removed"
    """It is out."""


ALLOWED = (State.ENROLLED, State.ACTIVE, State.PROBATION)
EVENT = {State.ASKED: "asked", State.ENROLLED: "approved", State.ACTIVE: "active"} | {
    state: str(state) for state in (State.PROBATION, State.REMOVED)
}
"""The audit's word for what leads into a state."""


@dataclass(frozen=True)
class Change:
    """How a client came to be what it is."""

    state: State
    time: str
    by: str
    round: int | None = None
    score: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Entry:
    """One client of the ledger."""

    client: str
    """The fingerprint of its public key."""
    name: str
    """What people call it."""
    key: str
    """Its public key, in OpenSSH format."""
    changes: tuple[Change, ...]
    """The first is the oldest; there is always one."""
    customised: int = 0
    """How many models were made for it that it did not train for in a round."""

    @property
    def state(self) -> State:
        """What the client is now."""
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

    def entries(self) -> dict[str, Entry]:
        """Return every client, in the order in which they asked, as the file is now."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            return {client: _entry(client, facts) for client, facts in content.items()}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror}") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InputError(f"{self.path} is damaged: bring it back from a backup") from None

    def names(self) -> dict[str, str]:
        """Return what every client is called."""
        return {client: entry.name for client, entry in self.entries().items()}

    def find(self, who: str) -> Entry:
        """Return the client with this name or fingerprint, or whose fingerprint begins with it."""
        entries = self.entries()
        wanted = who.strip().lower()
        if wanted in entries:  # whatever somebody else calls itself
            return entries[wanted]
        found = [
            entry
            for entry in entries.values()
            if wanted == entry.name.lower() or (len(wanted) >= 4 and entry.client.startswith(wanted))
        ]
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError(f"{len(found)} clients go by {bounded(who, 60)!r}: give the whole fingerprint")
        names = nearest(wanted, (entry.name for entry in entries.values()))
        raise InputError(f"no client is called {bounded(who, 60)!r}: {names}")

    def allowed(self, client: str) -> bool:
        """Whether a client may take part."""
        entry = self.entries().get(client)
        return entry is not None and entry.allowed

    def ask(self, client: str, name: str, key: str) -> Entry:
        """Note a site's request; one that was noted before stays what it is."""
        with self._writing() as entries:
            if client in entries:
                return entries[client]
            if any(entry.name.lower() == name.lower() for entry in entries.values()):
                raise InputError(f"another site is called {name!r}: let the site enrol under another name")
            change = Change(State.ASKED, now(), OPERATOR)
            self.audit.write("asked", client=client, by=OPERATOR, name=name)
            entries[client] = Entry(client, name, key, (change,))
        return entries[client]

    def approve(self, client: str, by: str = OPERATOR, reason: str = "") -> None:
        """Take a site in that has asked."""
        self._change(client, (State.ASKED,), Change(State.ENROLLED, now(), by, reason=reason))

    def activate(self, client: str, round: int, by: str = SERVER) -> None:
        """Note that a client took part, or that it is no longer suspected."""
        came = (State.ENROLLED, State.PROBATION)
        self._change(client, came, Change(State.ACTIVE, now(), by, round))

    def suspect(self, client: str, round: int, score: float, reason: str, by: str = SERVER) -> None:
        """Put a client on probation."""
        came = (State.ENROLLED, State.ACTIVE, State.PROBATION)
        self._change(client, came, Change(State.PROBATION, now(), by, round, score, bounded(reason)))

    def remove(
        self,
        client: str,
        reason: str,
        round: int | None = None,
        score: float | None = None,
        by: str = SERVER,
    ) -> None:
        """Put a client out; if it asked and was never taken in, turn it away."""
        came = (State.ASKED, *ALLOWED)
        self._change(client, came, Change(State.REMOVED, now(), by, round, score, bounded(reason)))

    def readmit(self, client: str, reason: str, round: int | None = None, by: str = OPERATOR) -> None:
        """Take a removed client back; it comes as a newcomer."""
        if not reason.strip():
            raise InputError("say why the client is taken back: --reason TEXT")
        change = Change(State.ENROLLED, now(), by, round, reason=bounded(reason))
        self._change(client, (State.REMOVED,), change, "readmitted")

    def count_customised(self, client: str, most: int) -> bool:
        """Count a model made for a client that asked; whether it may have one, of at most so many."""
        with self._writing() as entries:
            entry = entries.get(client)
            if entry is None or not entry.allowed or entry.customised >= most:
                return False
            self.audit.write("customised", client=client, by=SERVER, count=entry.customised + 1, most=most)
            entries[client] = replace(entry, customised=entry.customised + 1)
        return True

    def _change(self, client: str, came: tuple[State, ...], change: Change, event: str | None = None) -> None:
        """Bring a client into a new state; it must be in one of those it can come from."""
        with self._writing() as entries:
            entry = entries.get(client)
            if entry is None:
                raise InputError(f"no client has the fingerprint {bounded(client, 60)!r}")
            if entry.state not in came:
                raise InputError(f"{entry.name} is {entry.state}, not {' or '.join(came)}")
            if event is None and entry.state == State.PROBATION and change.state == State.ACTIVE:
                event = "cleared"
            facts = {"name": entry.name} | ({} if change.score is None else {"score": change.score})
            self.audit.write(
                event or EVENT[change.state],
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
    def _writing(self) -> Iterator[dict[str, Entry]]:
        """Yield the clients, locked for this process; what the block makes of them is written at its end."""
        with open(self.path.with_name(f".{self.path.name}.lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = self.entries()
            before = dict(entries)
            yield entries
            if entries != before:
                content = {client: _facts(entry) for client, entry in entries.items()}
                write_aside(self.path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _facts(entry: Entry) -> dict[str, object]:
    """Return a client for JSON, its state first."""
    facts = asdict(entry)
    del facts["client"]
    return {"state": entry.state, **facts}


def _entry(client: str, facts: Mapping[str, object]) -> Entry:
    changes: list[Mapping[str, object]] = facts["changes"]  # type: ignore[assignment]
    made = tuple(Change(**{**change, "state": State(str(change["state"]))}) for change in changes)  # type: ignore[arg-type]
    if not made:
        raise ValueError("a client without a state")
    return Entry(client, str(facts["name"]), str(facts["key"]), made, int(str(facts["customised"])))
