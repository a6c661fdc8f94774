"""What is asked of the hardened method, and what came out: each bar with the figures that decide it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedcap.errors import plural
from fedcap.experiments.paper.harm import harm
from fedcap.files import Value
from fedcap.report.panel import NO_ATTACK, Panel, attack_title
from fedcap.report.tables import Table

PAPER, HARDENED = "fedcap", "hardened"
FLIPPING = "sign-flipping"
AT_ONCE = ("model-replacement", "lie", "min-max", "min-sum", "ipm")
PUBLISHED = (FLIPPING, *AT_ONCE)
SOON, NO_WORSE, NEAR = 3.0, 0.5, 3.0
"""Rounds to removal; points below the paper's preset; points below no attack, and below Local."""


def asked_table(panel: Panel) -> Table:
    """Return a line per bar: what is asked, whether it is reached, and where it is not or how far it is."""
    adaptive = [attack for attack in panel.attacks if attack not in PUBLISHED]
    rows = [
        row
        for row in (
            _removed_at_once(panel),
            _flipping_in_time(panel),
            _no_worse(panel),
            _honest_stay(panel, adaptive),
            _near_no_attack(panel, adaptive),
            _above_local(panel, adaptive),
        )
        if row is not None
    ]
    return Table(["asked", "reached", "where not, or how far"], rows)


def _row(asked: str, missed: Sequence[str], otherwise: str) -> list[Value]:
    return [asked, "no" if missed else "yes", ", ".join(missed) if missed else otherwise]


def _removed_at_once(panel: Panel) -> list[Value] | None:
    missed, slowest = [], 0.0
    there = [attack for attack in AT_ONCE if panel.of(HARDENED, attack)]
    for attack in there:
        wrong = [_mean(panel, attack, figure) for figure in ("fnr", "fpr")]
        rounds = _mean(panel, attack, "rounds_to_removal")
        slowest = max(slowest, rounds)
        if any(wrong) or rounds > SOON:
            missed.append(f"{attack} (FNR {wrong[0]:.0f}, FPR {wrong[1]:.1f}, {rounds:.1f} rounds)")
    asked = f"FNR 0 and FPR 0 under {', '.join(there)}, within {SOON:g} rounds"
    return _row(asked, missed, f"{slowest:.1f} rounds at most") if there else None


def _flipping_in_time(panel: Panel) -> list[Value] | None:
    ours, theirs = (panel.estimate(m, FLIPPING, "rounds_to_removal") for m in (HARDENED, PAPER))
    if ours is None or theirs is None:
        return None
    said = f"{ours.mean:.1f} rounds, with the paper's preset {theirs.mean:.1f}"
    return _row(f"{FLIPPING} removed as soon", [said] if ours.mean > theirs.mean else [], said)


def _no_worse(panel: Panel) -> list[Value] | None:
    gaps = {attack: d.mean for attack, d in panel.differences(HARDENED, PAPER).items()}
    if not gaps:
        return None
    asked = f"accuracy nowhere more than {NO_WORSE:g} points below the paper's preset"
    return _row(asked, *_beyond(gaps, NO_WORSE))


def _honest_stay(panel: Panel, attacks: Sequence[str]) -> list[Value] | None:
    removed = {attack: _honest_removed(panel, attack) for attack in attacks}
    if not any(removed.values()):
        return None
    missed = [
        f"{attack} ({sum(counts)} in {plural(len(counts), 'run')})"
        for attack, counts in removed.items()
        if sum(counts) > max(1, len(counts) // 5)
    ]
    asked = "under attackers who know it, at most one honest client removed in five runs"
    total = sum(map(sum, removed.values()))
    return _row(asked, missed, f"{total} in {plural(sum(map(len, removed.values())), 'run')}")


def _honest_removed(panel: Panel, attack: str) -> list[int]:
    """Return how many honest clients were removed in each run."""
    runs = panel.of(HARDENED, attack).values()
    return [sum(c.removed is not None for c in run.clients if not c.malicious) for run in runs]


def _near_no_attack(panel: Panel, attacks: Sequence[str]) -> list[Value] | None:
    lost = {attack: harm(panel, HARDENED, attack).lost for attack in attacks}
    found = {attack: -points for attack, points in lost.items() if points is not None}
    asked = f"under attackers who know it, accuracy within {NEAR:g} points of no attack"
    return _row(asked, *_beyond(found, NEAR)) if found else None


def _above_local(panel: Panel, attacks: Sequence[str]) -> list[Value] | None:
    gaps = {attack: harm(panel, HARDENED, attack).worst_client for attack in [NO_ATTACK, *attacks]}
    found = {attack: gap for attack, gap in gaps.items() if gap is not None}
    asked = (
        f"under attackers who know it, no honest client over {NEAR:g} points below its own Local, over seeds"
    )
    return _row(asked, *_beyond(found, NEAR)) if found else None


def _beyond(gaps: Mapping[str, float], points: float) -> tuple[list[str], str]:
    """Return the attacks with a gap further below than so many points, and what to say if there are none."""
    named = {attack_title(attack): gap for attack, gap in gaps.items()}
    lowest = min(named, key=lambda attack: named[attack])
    missed = [f"{attack} ({gap:+.1f})" for attack, gap in named.items() if gap < -points]
    return missed, f"{named[lowest]:+.1f} at the lowest, under {lowest}"


def _mean(panel: Panel, attack: str, figure: str) -> float:
    estimate = panel.estimate(HARDENED, attack, figure)
    return 0.0 if estimate is None else estimate.mean
