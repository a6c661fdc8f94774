"""What a round that counts means for the ledger and the audit: who is active, suspected, removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from fedcap.errors import InputError
from fedcap.federation.audit import Audit
from fedcap.federation.ledger import SERVER, Ledger, State
from fedcap.runs import RoundRecord
from fedcap.server.server import BY_HAND, RoundOutcome

RISING = (State.APPROVED, State.PROBATION)
"""Out of these a client becomes active by an upload that counts."""
BY_HAND_EARLIER = 2
"""By how many rounds at most the ledger has a removal by hand before the record of a round has it."""


def note_round(
    ledger: Ledger, record: RoundRecord, outcome: RoundOutcome, weights: Mapping[str, float] | None = None
) -> None:
    """Tell the ledger and the audit of a round that is on disk.

    `weights` are the clients' mean shares in the models that went out.
    """
    note_removals(ledger, record)
    states = {client: entry.state for client, entry in ledger.entries().items()}
    number = record.round
    for client in record.participants:
        with suppress(InputError):  # the operator may have removed it in the meantime
            if client in outcome.suspected:
                reason = outcome.suspected[client]
                ledger.suspect(client, number, reason.value, reason.sentence)
            elif client not in {**record.refused, **record.removed} and states.get(client) in RISING:
                ledger.activate(client, number)
    _tell(ledger.audit, record, weights)


def _tell(audit: Audit, record: RoundRecord, weights: Mapping[str, float] | None = None) -> None:
    """Write to the audit what was refused and bounded in a round, and at last that it counts."""
    number = record.round
    for client, why in record.refused.items():
        audit.write("refused", client=client, round=number, by=SERVER, reason=why)
    for client, why in record.bounded.items():
        audit.write("bounded", client=client, round=number, by=SERVER, reason=why)
    accuracy = None if record.accuracy is None else round(record.accuracy.best, 1)
    took_part = list(record.participants)
    audit.write("round", round=number, by=SERVER, participants=took_part, accuracy=accuracy, weights=weights)


def note_removals(ledger: Ledger, record: RoundRecord) -> None:
    """Put those out of the ledger whom the server has just removed."""
    for client, reason in record.removed.items():
        if reason.score != BY_HAND:
            with suppress(InputError):  # the operator was faster, or took it out of the file
                ledger.remove(client, reason.sentence, record.round, reason.value)


def catch_up(ledger: Ledger, history: Sequence[RoundRecord], out: Iterable[str]) -> None:
    """Put those out of the ledger who are out on the server, unless the ledger tells of it and more since.

    It does not if the server was killed before it was told, or if the file is an older copy. Without this,
    whoever is out would be taken for readmitted. The audit is told of the last round, if it was not.
    """
    last = {client: (record.round, reason) for record in history for client, reason in record.removed.items()}
    entries = ledger.entries()
    for client in out:
        if client in last and client in entries and entries[client].allowed:
            number, reason = last[client]
            told = [change.round for change in entries[client].changes if change.state == State.REMOVED]
            if all(known is not None and known < number - BY_HAND_EARLIER for known in told):
                ledger.remove(client, reason.sentence, number, reason.value)
    told_rounds = {event.round for event in ledger.audit.events() if event.event == "round"}
    if history and history[-1].round not in told_rounds:
        _tell(ledger.audit, history[-1])
