"""What a round that counts means for the ledger and the audit: who is active, suspected, removed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from fedcap.federation.ledger import SERVER, Ledger, State
from fedcap.methods.rounds import Closing
from fedcap.methods.server import BY_HAND
from fedcap.records import RoundRecord
from fedcap.registry import InputError

RISING = (State.ENROLLED, State.PROBATION)
"""Out of these a client becomes active by an upload that counts."""


def note_round(
    ledger: Ledger, record: RoundRecord, closing: Closing, weights: Mapping[str, float] | None = None
) -> None:
    """Tell the ledger and the audit of a round that is on disk.

    `weights` are the clients' mean shares in the models that went out.
    """
    note_removals(ledger, record)
    states = {client: entry.state for client, entry in ledger.entries().items()}
    number = record.round
    for client in record.participants:
        with suppress(InputError):  # the operator may have removed it in the meantime
            if client in closing.suspected:
                reason = closing.suspected[client]
                ledger.suspect(client, number, reason.value, reason.sentence)
            elif client not in {**record.refused, **record.removed} and states.get(client) in RISING:
                ledger.activate(client, number)
    for client, why in record.refused.items():
        ledger.audit.write("refused", client=client, round=number, by=SERVER, reason=why)
    for client, why in record.bounded.items():
        ledger.audit.write("bounded", client=client, round=number, by=SERVER, reason=why)
    accuracy = None if record.accuracy is None else round(record.accuracy.best, 1)
    took_part = list(record.participants)
    ledger.audit.write(
        "round", round=number, by=SERVER, participants=took_part, accuracy=accuracy, weights=weights
    )


def note_removals(ledger: Ledger, record: RoundRecord) -> None:
    """Put those out of the ledger whom the server removed in a round, unless that is there already."""
    entries = ledger.entries()
    for client, reason in record.removed.items():
        changes = entries[client].changes if client in entries else ()
        known = [change.round for change in changes if change.state == State.REMOVED]
        if reason.score != BY_HAND and record.round not in known:
            with suppress(InputError):  # the operator was faster, or took it out of the file
                ledger.remove(client, reason.sentence, record.round, reason.value)
