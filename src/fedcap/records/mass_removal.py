"""Many clients removed at once, and runs in which nobody is left: what was seen, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from fedcap.records.rounds import RoundRecord

ADVICE = (
    "scale the data (dataset.standardise=true for your own), raise the detector's limit"
    " (FedCAP: method.t_norm), or train in fewer or smaller steps (training.epochs, training.lr)"
)


def mass_removal(record: RoundRecord) -> str | None:
    """Return a sentence if at least half of a round's participants were removed in it, else none."""
    removed, participants = len(record.removed), len(record.participants)
    if not removed or 2 * removed < participants:
        return None
    who = f"{removed} of {participants} participants"
    return (
        f"{who} were removed at once in round {record.round} ({_seen(record)}): if they are honest, {ADVICE}"
    )


def nobody_left(history: Sequence[RoundRecord], clients: Sequence[str]) -> str | None:
    """Return why a run has stopped early, in a sentence: every client was removed; none if some are left."""
    when = {client: record.round for record in history for client in record.removed}
    if not all(client in when for client in clients):
        return None
    last = max(when.values())
    record = next(record for record in history if record.round == last)
    in_round = f"in round {last}" if set(when.values()) == {last} else f"by round {last}"
    return f"all {len(clients)} clients were removed {in_round} ({_seen(record)}): {ADVICE}"


def _seen(record: RoundRecord) -> str:
    """Return the values of the score that removed most clients, against its limit."""
    score = Counter(reason.score for reason in record.removed.values()).most_common(1)[0][0]
    values = record.scores.get(score, {}).values()
    finite = sorted(value for value in values if value is not None)
    odd = len(values) - len(finite)
    if not finite:
        return "no update was finite"
    limit = record.limits.get(score)
    parts = [
        f"{score}: smallest {finite[0]:.4g}, median {median(finite):.4g}, largest {finite[-1]:.4g}",
        *([] if limit is None else [f"limit {limit:g}"]),
        *([f"{odd} not finite"] if odd else []),
    ]
    return ", ".join(parts)
