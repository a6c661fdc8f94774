"""Sentences about problems of a run, with what to do about them.

The problems are an attack without malicious clients, rejected updates, a round that removes many clients, and
a run that stops because all clients were removed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from statistics import median

from fedcap.runs.rounds import RoundRecord

_RISE = 1.0
"""The rise of the accuracy, in points, that shows that a run is too short."""
_ADVICE = (
    "scale the data (dataset.standardise=true for your own), raise the detector's limit"
    " (FedCAP: method.t_norm), or train in fewer or smaller steps (training.epochs, training.lr)"
)
"""What to do if honest clients are removed."""


def absent_attack(attack: str, share: float, clients: int, named: bool = False) -> str:
    """Return a sentence for an attack without malicious clients; `named` if attack.clients was given."""
    if named:
        why = "attack.clients names no client"
    elif clients < 3:
        why = f"{clients} clients are too few for a malicious one"
    else:
        digits = len(str(clients)) + 1
        least = math.ceil(10**digits / clients) / 10**digits
        why = f"a share of {share:g} of {clients} clients is 0; set malicious to {least:g} or more"
    return f"attack {attack}, but no client is malicious: {why}"


def always_refused(history: Sequence[RoundRecord], clients: Collection[str]) -> set[str]:
    """Return which of these clients took part and had their update rejected each time."""
    took_part = Counter(k for record in history for k in {*record.participants, *record.refused})
    refused = Counter(k for record in history for k in record.refused)
    return {client for client in clients if 0 < took_part[client] == refused[client]}


def refusals(
    history: Sequence[RoundRecord], malicious: Collection[str], others: str = "honest client"
) -> list[str]:
    """Return a sentence about attackers, and one about other clients, whose updates were rejected.

    Clients that were removed later are not counted, because they are reported as removed.
    """
    removed = {client for record in history for client in record.removed}
    refused = {client for record in history for client in record.refused} - removed
    attackers = refused & set(malicious)
    groups = (("attacker", attackers), (others, refused - attackers))
    return [_describe_refused(history, kind, clients) for kind, clients in groups if clients]


def _describe_refused(history: Sequence[RoundRecord], kind: str, clients: set[str]) -> str:
    rounds = [record for record in history if clients & record.refused.keys()]
    refused = [why for record in rounds for client, why in record.refused.items() if client in clients]
    reasons = Counter(why.removeprefix("request ") for why in refused)
    always = always_refused(history, clients) == clients
    when = "every round" if always else f"{len(rounds)} of {len(history)} rounds"
    others = " (the most common reason)" if len(reasons) > 1 else ""
    whose = f"1 {kind}'s" if len(clients) == 1 else f"{len(clients)} {kind}s'"
    return f"{whose} updates were refused in {when}: {reasons.most_common(1)[0][0]}{others}"


def still_rising(history: Sequence[RoundRecord]) -> str | None:
    """Return a sentence if the accuracy rose by more than a point in the last fifth of the rounds."""
    found = [(record.round, record.accuracy.best) for record in history if record.accuracy is not None]
    if not found or found[-1][0] < 5:
        return None
    last, accuracy = found[-1]
    earlier = [(number, value) for number, value in found if number <= last - last // 5]
    if not earlier or accuracy - earlier[-1][1] <= _RISE:
        return None
    return (
        f"accuracy rose by {accuracy - earlier[-1][1]:.1f} points in the last {last - earlier[-1][0]} rounds:"
        " play more rounds, or set a larger training.lr"
    )


def mass_removal(record: RoundRecord) -> str | None:
    """Return a sentence if a round removed at least half of its participants, else none."""
    removed, participants = len(record.removed), len(record.participants)
    if not removed or 2 * removed < participants:
        return None
    who = f"{removed} of {participants} participants"
    when = f"in round {record.round} ({_describe_score(record)})"
    return f"{who} were removed at once {when}: if they are honest, {_ADVICE}"


def all_removed(history: Sequence[RoundRecord], clients: Sequence[str]) -> str | None:
    """Return the sentence for a run that stopped because all clients were removed; none if some remain."""
    when = {client: record.round for record in history for client in record.removed}
    if not all(client in when for client in clients):
        return None
    last = max(when.values())
    record = next(record for record in history if record.round == last)
    in_round = f"in round {last}" if set(when.values()) == {last} else f"by round {last}"
    return f"all {len(clients)} clients were removed {in_round} ({_describe_score(record)}): {_ADVICE}"


def _describe_score(record: RoundRecord) -> str:
    """Return the values and the limit of the score that removed most clients."""
    score = Counter(reason.score for reason in record.removed.values()).most_common(1)[0][0]
    values = record.scores.get(score, {}).values()
    finite = sorted(value for value in values if value is not None)
    not_finite = len(values) - len(finite)
    if not finite:
        return "no update was finite"
    limit = record.limits.get(score)
    parts = [
        f"{score}: smallest {finite[0]:.4g}, median {median(finite):.4g}, largest {finite[-1]:.4g}",
        *([] if limit is None else [f"limit {limit:g}"]),
        *([f"{not_finite} not finite"] if not_finite else []),
    ]
    return ", ".join(parts)
