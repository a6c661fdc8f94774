"""The grid of every method under every attack on `digits`: where FedCAP does not lead, and the worst attacks.

A method's worst attack is taken over all attacks and variants that it was run under, in any grid on the same
data with the same seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from fedcap.files import Value
from fedcap.report.panel import NO_ATTACK, Estimate, Finished, Panel, attack_title, make_panels, row_label
from fedcap.report.tables import Table

FEDCAP, HARDENED = "fedcap", "hardened"
_HARDENED_IN_MATRIX = "fedcap, hardened"


@dataclass(frozen=True)
class Grids:
    """The saved grids that the page needs; each may be empty."""

    matrix: Finished = ()
    """Every method under every attack on digits."""
    variants: Finished = ()
    """FedCAP's presets under variants of attacks that know the defence."""
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
    """Whether the 95 % interval of the paired difference is above 0."""

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


def without_repeats(finished: Finished) -> tuple[Finished, Mapping[str, str]]:
    """Return the runs without attacks that repeat another, and these attacks with the one that they repeat.

    An attack repeats another if every method has the same figures under both, seed by seed.
    """
    figures: dict[str, dict[tuple[str, str, str], tuple[float | None, ...]]] = {}
    for place, run in finished:
        at = (place["dataset"], row_label(place), place["seed"])
        values = (run.tacc_shared, run.tacc_personal, run.fpr, run.fnr)
        figures.setdefault(place["attack"], {})[at] = values
    names = list(figures)
    repeats = {
        attack: first
        for position, attack in enumerate(names)
        if (first := next((other for other in names[:position] if figures[other] == figures[attack]), None))
    }
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
            is_clear = gap.half_width is not None and gap.mean > gap.half_width
            found.append(Lead(attack, ours, best, means[best], is_clear))
    return found


def worst_cases(matrix: Finished, others: Sequence[Finished]) -> list[WorstCase]:
    """Return the worst attack of each method of the matrix over all grids, the best worst case first.

    Of an attack that is in several grids the matrix has the figure.
    """
    panels = make_panels(_renamed(matrix))[:1]
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
        if means:
            attack = min(means, key=lambda name: means[name].mean)
            found.append(WorstCase(method, len(means), calm, attack, means[attack]))
    return sorted(found, key=lambda case: -case.worst.mean)


def _renamed(finished: Finished) -> Finished:
    """Return the runs of the matrix with the hardened preset named as in the other grids."""
    return [
        ({**place, "method": HARDENED} if place["method"] == _HARDENED_IN_MATRIX else place, run)
        for place, run in finished
    ]


def worst_table(cases: Sequence[WorstCase]) -> Table:
    """Return a row for each method: its accuracy without attack, and under its worst attack or variant."""
    rows: list[list[Value]] = [
        [case.method, _text(case.calm), _text(case.worst), case.attack, case.attacks] for case in cases
    ]
    return Table(["method", "no attack", "worst", "attack or variant", "attacks and variants run"], rows)


def _text(estimate: Estimate | None) -> str | None:
    if estimate is None:
        return None
    half = "" if estimate.half_width is None else f" ± {estimate.half_width:.1f}"
    return f"{estimate.mean:.1f}{half}{' †' * bool(estimate.diverged)}"
