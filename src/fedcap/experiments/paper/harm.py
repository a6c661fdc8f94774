"""What an attack costs the honest clients of a method: against no attack, and against learning alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from fedcap.report.panel import NO_ATTACK, Panel
from fedcap.runs import Outcome

LOCAL = "local"


@dataclass(frozen=True)
class Harm:
    """Points of accuracy, over seeds; None where there is nothing to compare with."""

    lost: float | None
    """How far honest clients are below what the same clients have without attack."""
    worst_of_a_run: float | None
    """How far the client worst off in a run is above its own accuracy with Local: mostly it is below."""
    worst_client: float | None
    """The same of each client over the runs in which it is honest, then the worst of them."""


def harm(panel: Panel, method: str, attack: str) -> Harm:
    """Return what an attack costs the honest clients of a method."""
    runs, calm, alone = (panel.of(*at) for at in ((method, attack), (method, NO_ATTACK), (LOCAL, NO_ATTACK)))
    below = [-fmean(gaps.values()) for gaps in _all_above(runs, calm)]
    above = _all_above(runs, alone)
    by_client: dict[str, list[float]] = defaultdict(list)
    for gaps in above:
        for client, gap in gaps.items():
            by_client[client].append(gap)
    return Harm(
        fmean(below) if below else None,
        fmean(min(gaps.values()) for gaps in above) if above else None,
        min(fmean(gaps) for gaps in by_client.values()) if by_client else None,
    )


def _all_above(runs: Mapping[str, Outcome], others: Mapping[str, Outcome]) -> list[dict[str, float]]:
    """Return by how much each honest client of each run is above itself in the other run of that seed."""
    gaps = [_above(run, others[seed]) for seed, run in runs.items() if seed in others]
    return [found for found in gaps if found]


def _above(run: Outcome, other: Outcome) -> dict[str, float]:
    theirs = {client.id: client.personal or 0.0 for client in other.clients}
    return {c.id: (c.personal or 0.0) - theirs[c.id] for c in run.clients if not c.malicious}
