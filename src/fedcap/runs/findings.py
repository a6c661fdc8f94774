"""What became of an attack: that nobody carried it out, or that what was sent was refused.

Many clients removed at once, and runs in which nobody is left: what was seen, and what to do about it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from collections.abc import Sequence
from fedcap.runs.rounds import RoundRecord
from statistics import median

def absent_attack(attack: str, share: float, clients: int, named: bool = False) -> str:
    """Return that an attack has no client to carry it out, and what to do; `named` if clients were named."""
    if named:
        why = "attack.clients is empty"
    elif clients < 3:
        why = f"{clients} clients are too few for one of them to be"
    else:
        digits = len(str(clients)) + 1
        least = math.ceil(10**digits / clients) / 10**digits
        why = f"{share:g} of {clients} is none; set malicious to {least:g} or more"
    return f"attack {attack}, but no client is malicious: {why}"


def always_refused(history: Sequence[RoundRecord], clients: Collection[str]) -> set[str]:
    """Return who of these took part and was refused every time."""
    there = Counter(k for record in history for k in {*record.participants, *record.refused})
    refused = Counter(k for record in history for k in record.refused)
    return {client for client in clients if 0 < there[client] == refused[client]}


def refusals(
    history: Sequence[RoundRecord], malicious: Collection[str], others: str = "honest client"
) -> list[str]:
    """Return a sentence on the attackers and one on the others whose updates were refused, if any.

    Whoever was removed in the end is not counted: that says more.
    """
    removed = {client for record in history for client in record.removed}
    refused = {client for record in history for client in record.refused} - removed
    attackers = refused & set(malicious)
    groups = (("attacker", attackers), (others, refused - attackers))
    return [_refused(history, kind, clients) for kind, clients in groups if clients]


def _refused(history: Sequence[RoundRecord], kind: str, clients: set[str]) -> str:
    rounds = [record for record in history if clients & record.refused.keys()]
    told = [why for record in rounds for client, why in record.refused.items() if client in clients]
    reasons = Counter(why.removeprefix("request ") for why in told)
    always = always_refused(history, clients) == clients
    when = "every round" if always else f"{len(rounds)} of {len(history)} rounds"
    others = " (the most common reason)" if len(reasons) > 1 else ""
    whose = f"1 {kind}'s" if len(clients) == 1 else f"{len(clients)} {kind}s'"
    return f"{whose} updates were refused in {when}: {reasons.most_common(1)[0][0]}{others}"


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
