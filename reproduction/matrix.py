"""The grid of every method under every attack on `digits`: FedCAP against each method, and the worst attacks.

Methods are compared by their differences at each seed. From ten seeds on a difference is clear if its p-value
(sign-flip test, Holm's correction over the attacks) is below 0.05. Fewer seeds cannot reach that: with them a
difference is clear if its 95 % interval does not contain 0. A method's worst attack is taken over all attacks
and variants that it was run under, in any grid on the same data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean

from fedcap.files import Value
from fedcap.report.panel import (
    NO_ATTACK,
    Difference,
    Estimate,
    Finished,
    Panel,
    attack_title,
    make_panels,
    row_label,
)
from fedcap.report.tables import Table

FEDCAP, HARDENED = "fedcap", "hardened"
_HARDENED_IN_MATRIX = "fedcap, hardened"
ENOUGH_FOR_TESTS = 10
"""With n seeds the smallest p-value of the sign-flip test is 2/2ⁿ: 0.002 with ten, 0.06 with five."""
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Grids:
    """The saved grids that the page needs; each may be empty."""

    matrix: Finished = ()
    """Every method under every attack on digits."""
    variants: Finished = ()
    """FedCAP's presets under variants of attacks that know the defence."""
    rivals: Finished = ()
    """Other methods under the same variants."""
    trained: Finished = ()
    """FedCAP's presets under attackers who train against them."""
    wisdm: Finished = ()
    """The hardened preset on WISDM without attack, over seeds."""


@dataclass(frozen=True)
class Lead:
    """An attack under which the mean of some other method is above FedCAP's."""

    attack: str
    fedcap: Estimate
    rival: str
    best: Estimate
    """The highest mean of the other methods."""
    is_clear: bool

    def __str__(self) -> str:
        return f"{attack_title(self.attack)} ({self.fedcap.mean:.1f}, {self.rival} {self.best.mean:.1f})"


@dataclass(frozen=True)
class WorstCase:
    """The attack or variant under which a method's mean is lowest."""

    method: str
    attacks: int
    """The number of attacks and variants that the method was run under."""
    calm: Estimate | None
    """Without attack."""
    attack: str
    worst: Estimate
    common_attack: str
    common_worst: Estimate
    """Over the attacks of the matrix only, under which every method was run."""


def without_repeats(finished: Finished) -> tuple[Finished, Mapping[str, str]]:
    """Return the runs without attacks that repeat another, and these attacks with the one that they repeat.

    An attack repeats another if every method has the same figures under both, at each seed at which it was
    run under both. At least half of the other's methods must have been run under it.
    """
    figures: dict[str, dict[tuple[str, str, str], tuple[float | None, ...]]] = {}
    for place, run in finished:
        at = (row_label(place), place["dataset"], place["seed"])
        values = (run.tacc_shared, run.tacc_personal, run.fpr, run.fnr)
        figures.setdefault(place["attack"], {})[at] = values
    methods = {attack: {method for method, *_ in own} for attack, own in figures.items()}
    ranked = sorted(figures, key=lambda attack: -len(figures[attack]))
    repeats: dict[str, str] = {}
    for position, attack in enumerate(ranked):
        for other in ranked[:position]:
            covers = 2 * len(methods[attack]) >= len(methods[other]) and other not in repeats
            if covers and figures[attack].items() <= figures[other].items():
                repeats[attack] = other
                break
    return [(place, run) for place, run in finished if place["attack"] not in repeats], repeats


def leads(panel: Panel) -> list[Lead]:
    """Return the attacks under which a method other than FedCAP's two presets has a higher mean."""
    found = []
    rivals = [name for name in panel.methods if name not in (FEDCAP, _HARDENED_IN_MATRIX, HARDENED)]
    differences = {rival: panel.differences(rival, FEDCAP) for rival in rivals}
    for attack in panel.attacks:
        ours = panel.estimate(FEDCAP, attack)
        means = {rival: mean for rival in rivals if (mean := panel.estimate(rival, attack)) is not None}
        if ours is None or not means:
            continue
        best = max(means, key=lambda rival: means[rival].mean)
        gap = differences[best][attack]
        if gap.mean > 0:
            found.append(Lead(attack, ours, best, means[best], is_clear(gap)))
    return found


def mean_margins(panel: Panel) -> dict[str, float]:
    """Return FedCAP's accuracy minus that of each other method, as a mean over the attacks."""
    found = {}
    for name in panel.methods:
        pairs = [(panel.estimate(FEDCAP, attack), panel.estimate(name, attack)) for attack in panel.attacks]
        gaps = [ours.mean - theirs.mean for ours, theirs in pairs if ours is not None and theirs is not None]
        if gaps and name not in (FEDCAP, _HARDENED_IN_MATRIX):
            found[name] = fmean(gaps)
    return found


def is_clear(gap: Difference) -> bool:
    """Whether a difference between two methods is more than chance between seeds."""
    if len(gap.seeds) >= ENOUGH_FOR_TESTS:
        return gap.p_holm < SIGNIFICANT
    return gap.half_width is not None and abs(gap.mean) > gap.half_width


def duels_table(panel: Panel) -> Table:
    """Return a row for each method: under how many attacks FedCAP's mean is above or below the method's."""
    rows: list[list[Value]] = []
    for name in panel.methods:
        gaps = panel.differences(FEDCAP, name)
        calm = gaps.pop(NO_ATTACK, None)
        if name == FEDCAP or not gaps:
            continue
        counts = []
        for sign in (1, -1):
            found = [gap for gap in gaps.values() if sign * gap.mean > 0]
            counts.append(f"{len(found)} ({sum(map(is_clear, found))})")
        mean = fmean(gap.mean for gap in gaps.values())
        seeds = {len(gap.seeds) for gap in gaps.values()}
        number = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else f"{seeds.pop()}"
        calm_text = None if calm is None else f"{calm.mean:+.1f}"
        rows.append([name, calm_text, f"{mean:+.1f}", *counts, len(gaps), number])
    columns = ("method", "no attack", "mean over attacks", "FedCAP higher", "lower", "attacks", "seeds")
    return Table(columns, rows)


def worst_cases(grids: Grids) -> list[WorstCase]:
    """Return the worst attack of each method of the matrix over all grids, the best worst case first.

    Of an attack that is in several grids the matrix has the figure.
    """
    panels = make_panels(_renamed(grids.matrix))[:1]
    others = (grids.variants, grids.rivals, grids.trained)
    for panel in chain.from_iterable(map(make_panels, others)):
        if panels and panel.place == panels[0].place:
            panels.append(panel)
    found = []
    for method in panels[0].methods if panels else ():
        means: dict[str, Estimate] = {}
        seen: set[frozenset[str]] = set()  # one attack may have several names
        for panel in panels:
            for attack in panel.columns:
                runs = frozenset(run.digest for run in panel.of(method, attack).values())
                mean = panel.estimate(method, attack)
                if mean is not None and attack not in means and runs not in seen:
                    seen.add(runs)
                    means[attack] = mean
        calm = means.pop(NO_ATTACK, None)
        common = [attack for attack in panels[0].attacks if attack in means]
        if common:
            worst, usual = (min(names, key=lambda name: means[name].mean) for names in (means, common))
            case = WorstCase(method, len(means), calm, worst, means[worst], usual, means[usual])
            found.append(case)
    return sorted(found, key=lambda case: -case.worst.mean)


def _renamed(finished: Finished) -> Finished:
    """Return the runs of the matrix with the hardened preset named as in the other grids."""
    return [
        ({**place, "method": HARDENED} if place["method"] == _HARDENED_IN_MATRIX else place, run)
        for place, run in finished
    ]


def worst_table(cases: Sequence[WorstCase]) -> Table:
    """Return a row for each method: without attack, and under the worst attack, of the matrix and of all."""
    rows: list[list[Value]] = [
        [
            case.method,
            _text(case.calm),
            f"{_text(case.common_worst)}, {attack_title(case.common_attack)}",
            f"{_text(case.worst)}, {attack_title(case.attack)}",
            case.attacks,
            len(case.worst.seeds),
        ]
        for case in cases
    ]
    columns = ("method", "no attack", "worst of the common attacks", "worst of all", "attacks", "seeds")
    return Table(columns, rows)


def _text(estimate: Estimate | None) -> str | None:
    if estimate is None:
        return None
    half = "" if estimate.half_width is None else f" ± {estimate.half_width:.1f}"
    return f"{estimate.mean:.1f}{half}{' †' * bool(estimate.diverged)}"
