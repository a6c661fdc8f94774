"""The course of a run as series over rounds: accuracy, scores, what happened, the attack, mixing, costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedcap.errors import plural
from fedcap.report.story.clients import Standings, client_rows
from fedcap.report.story.held import Held
from fedcap.report.story.local import Local
from fedcap.report.story.mixing_map import MOST_ROWS, mixing_map
from fedcap.report.story.series import (
    AccuracyCurves,
    AttackCurves,
    Costs,
    Course,
    Event,
    Fact,
    MixingMap,
    ScoreCurves,
    Series,
    Spread,
)
from fedcap.report.story.thinning import MOST_EVENTS, Thinning
from fedcap.runs import MIXING, RoundRecord


def course_of(held: Held, local: Local | None, standings: Standings, thin: Thinning) -> Course:
    """Return all series of a run, and its clients."""
    return Course(
        clients=client_rows(held, local, standings, thin),
        accuracy=_accuracy(held, thin),
        local=None if local is None else local.curve,
        scores=_scores(held, thin),
        events=_events(held, thin),
        attack=_attack(held, thin),
        mixing=_mixing(held, thin),
        costs=_costs(held, thin),
        classes=_classes(held),
    )


def _accuracy(held: Held, thin: Thinning) -> AccuracyCurves | None:
    measured = [record for record in held.rounds if record.accuracy is not None]
    if not measured:
        return None
    records = thin.rounds("Accuracy", measured, len(held.clients))
    shares = any(record.accuracy and record.accuracy.shared is not None for record in records)
    return AccuracyCurves(
        [record.round for record in records],
        _spread(held, records, "shared") if shares else None,
        _spread(held, records, "personal"),
    )


def _spread(held: Held, records: Sequence[RoundRecord], reading: str) -> Spread:
    found = [record.accuracy for record in records if record.accuracy is not None]
    clients = np.full((len(held.clients), len(found)), np.nan)
    for column, accuracy in enumerate(found):
        for row, client in enumerate(held.clients):
            if (own := accuracy.clients.get(client)) is not None:
                value = getattr(own, reading)
                clients[row, column] = np.nan if value is None else value
    known = [column[np.isfinite(column)] for column in clients.T]
    return Spread(
        mean=[_rounded(getattr(accuracy, reading)) for accuracy in found],
        worst=[_rounded(float(column.min())) if column.size else None for column in known],
        best=[_rounded(float(column.max())) if column.size else None for column in known],
        clients=clients,
    )


def _scores(held: Held, thin: Thinning) -> list[ScoreCurves]:
    names = list(dict.fromkeys(name for record in held.rounds for name in record.scores))
    return [_score(held, name, thin, len(names) * len(held.clients)) for name in names]


def _score(held: Held, name: str, thin: Thinning, width: int) -> ScoreCurves:
    scored = [record for record in held.rounds if name in record.scores]
    records = thin.rounds(f"Scores ({thin.name(name)})", scored, width)
    values = np.full((len(held.clients), len(records)), np.nan)
    for column, record in enumerate(records):
        own = record.scores[name]
        for row, client in enumerate(held.clients):
            value = own.get(client)
            values[row, column] = np.nan if value is None else value
    limits = [record.limits.get(name) for record in records]
    return ScoreCurves(thin.name(name), [record.round for record in records], limits, values)


def _events(held: Held, thin: Thinning) -> list[Event]:
    """Return all removals, and of all else as much as there is room for."""
    place = {client: at for at, client in enumerate(held.clients)}
    every = [
        Event(number, place[client], kind, thin.words(why))  # type: ignore[arg-type]
        for number, client, kind, why in _happened(held.rounds)
        if client in place
    ]
    others = [event for event in every if event.kind != "removed"]
    if len(others) <= MOST_EVENTS:
        return every
    thin.say(f"Refusals and suspicions: the first {MOST_EVENTS} of {len(others):,} are listed.")
    dropped = set(map(id, others[MOST_EVENTS:]))
    return [event for event in every if id(event) not in dropped]


def _happened(rounds: Sequence[RoundRecord]) -> Iterator[tuple[int, str, str, str]]:
    """Yield (round, client, kind, why); who is removed or suspected is not told to be refused as well."""
    for record in rounds:
        told = {**record.removed, **record.suspected}
        yield from ((record.round, k, "removed", str(why)) for k, why in record.removed.items())
        yield from ((record.round, k, "suspected", str(why)) for k, why in record.suspected.items())
        yield from ((record.round, k, "refused", why) for k, why in record.refused.items() if k not in told)
        yield from ((record.round, k, "bounded", why) for k, why in record.bounded.items())
        yield from ((record.round, k, "diverged", "weights are not finite") for k in record.diverged)


def _attack(held: Held, thin: Thinning) -> AttackCurves | None:
    found = [(record.round, record.attack) for record in held.rounds if record.attack is not None]
    if not found:
        return None
    kept = thin.rounds("The attack", found)
    return AttackCurves(
        [number for number, _ in kept],
        [realised.length for _, realised in kept],
        [realised.benign_length for _, realised in kept],
        [realised.cosine for _, realised in kept],
    )


def _mixing(held: Held, thin: Thinning) -> MixingMap | None:
    entropies = {record.round: record.weights_entropy for record in held.rounds}
    mixed = [number for number, entropy in entropies.items() if entropy is not None]
    if not mixed:
        return None
    rows = min(len(held.clients), MOST_ROWS)
    wanted = set(thin.rounds("Mixing weights", mixed, rows * rows))
    found = held.mixings(wanted)
    if len(found) < len(wanted):
        thin.say(
            f"Mixing weights of {plural(len(wanted) - len(found), 'round')} cannot be read from {MIXING}."
        )
    return mixing_map(found, held.clients, entropies, thin)


def _costs(held: Held, thin: Thinning) -> Costs | None:
    if not held.rounds:
        return None
    kept = thin.rounds("Costs", held.rounds)

    def seconds(part: str) -> Series:
        return [_rounded(getattr(record.seconds, part), 4) for record in kept]

    return Costs(
        rounds=[record.round for record in kept],
        train=seconds("train"),
        evaluate=seconds("evaluate"),
        attack=seconds("attack"),
        server=seconds("server"),
        total=seconds("total"),
        bytes=[float(record.bytes) for record in kept],
    )


def _classes(held: Held) -> list[Fact]:
    metrics = None if held.result is None else held.result.metrics
    if held.result is None or metrics is None:
        return []
    shared = held.result.tacc_shared is not None and held.result.tacc_shared > held.result.tacc_personal
    measures = metrics.shared if shared and metrics.shared is not None else metrics.personal
    return [
        Fact(name, "–" if value is None else f"{value:.1f}") for name, value in measures.per_class.items()
    ]


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)
