"""The tables of a panel: accuracy by attack, differences to one method, the clients worst off, detection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fedcap.errors import plural
from fedcap.experiments.panel import NO_ATTACK, Difference, Estimate, Panel, Worst
from fedcap.experiments.statistics import smallest_p
from fedcap.files import Value
from fedcap.report.tables import Table

FIGURES = {
    "tacc": "accuracy, the better of shared and personal",
    "tacc_shared": "accuracy of the models that clients receive",
    "tacc_personal": "accuracy of the clients' personal models",
    "tacc_worst_client": "accuracy of the worst client",
    "tacc_p10": "accuracy that nine clients of ten reach",
}
"""The figures that a comparison may be of, each in percent of the honest clients' own test samples."""
SIGNIFICANT = 0.05
MISSING = "– has not finished, or has no such figure."
DIVERGED = (
    "† diverged: weights of honest clients became NaN or infinite, and accuracy means little. The mean "
    "counts these runs; a number after † says how many they are, if not all."
)
STOPPED = "‡ stopped: every client was removed. The mean counts these runs; they are numbered as with †."
DETECTION = {
    "dacc": "DAcc",
    "fpr": "FPR",
    "fnr": "FNR",
    "rounds_to_removal": "rounds to removal",
}


def accuracy_table(panel: Panel, figure: str = "tacc") -> Table:
    """Return a line per method: the mean under each attack, and under the worst of them."""
    estimates = {
        (method, attack): panel.estimate(method, attack, figure)
        for method in panel.methods
        for attack in panel.columns
    }
    worst = {method: panel.worst(method, figure) for method in panel.methods}
    several = len(panel.attacks) > 1
    rows: list[list[Value]] = [
        [
            method,
            *(_mean(estimates[method, attack], len(panel.seeds)) for attack in panel.columns),
            *([_worst(worst[method], len(panel.seeds))] if several else []),
        ]
        for method in panel.methods
    ]
    notes = [
        f"In percent of the honest clients' own test samples, in the last round: {_over(panel.seeds)}.",
        *["Worst attack: the lowest mean over the attacks."] * several,
        *_bound_notes(worst.values()),
        *_marks_notes(estimates.values()),
    ]
    columns = ["method", *_headings(panel), *["worst attack"] * several]
    return Table(columns, rows, f"{panel.title}: {FIGURES[figure]}", notes)


def difference_table(panel: Panel, against: str, figure: str = "tacc") -> Table:
    """Return a line per other method: by how much it is above `against` under each attack."""
    found = {
        method: panel.differences(method, against, figure) for method in panel.methods if method != against
    }
    rows: list[list[Value]] = [
        [method, *(_difference(own.get(attack), len(panel.seeds)) for attack in panel.columns)]
        for method, own in found.items()
    ]
    every = [own.get(attack) for own in found.values() for attack in panel.columns]
    notes = [
        f"Points above {against}, over the seeds that both have: mean [95 % bootstrap interval].",
        _p_note(panel),
        *_marks_notes(every),
    ]
    return Table(["method", *_headings(panel)], rows, f"{panel.title}: difference to {against}", notes)


def clients_table(panel: Panel) -> Table:
    """Return a line per method: its worst client and its 10th percentile, without attack and at the worst."""
    figures = {"tacc_worst_client": "worst client", "tacc_p10": "10th percentile"}
    seeds, calm = len(panel.seeds), NO_ATTACK in panel.columns
    columns = ["method"]
    for name in figures.values():
        columns += [f"{name}, no attack"] * calm + [f"{name}, worst attack"] * bool(panel.attacks)
    rows: list[list[Value]] = []
    shown: list[Estimate | None] = []
    worsts: list[Worst | None] = []
    for method in panel.methods:
        rows.append([method])
        for figure in figures:
            if calm:
                shown.append(panel.estimate(method, NO_ATTACK, figure))
                rows[-1].append(_mean(shown[-1], seeds))
            if panel.attacks:
                worsts.append(worst := panel.worst(method, figure))
                shown.append(None if worst is None else worst.estimate)
                rows[-1].append(_worst(worst, seeds))
    notes = [
        "Accuracy of the honest client that fares worst, and the accuracy that nine of ten honest clients "
        f"reach: {_over(panel.seeds)}. The worst attack is each figure's own.",
        *_bound_notes(worsts),
        *_marks_notes(shown),
    ]
    return Table(columns, rows, f"{panel.title}: the clients worst off", notes)


def detection_table(panel: Panel) -> Table | None:
    """Return a line per method that detects and attack, and one over all attacks; none if no method does."""
    rows: list[list[Value]] = []
    for method in panel.methods:
        lines = {attack: _detection(panel, method, attack) for attack in panel.columns}
        if any(value is not None for line in lines.values() for value in line):
            overall: list[Value] = [panel.under_attack(method, figure) for figure in DETECTION]
            rows += [[method, "all attacks", *overall]] if len(panel.attacks) > 1 else []
            rows += [[method, heading(attack), *line] for attack, line in lines.items()]
    if not rows:
        return None
    notes = [
        "Means over the runs that are there; the first three in percent. DAcc: clients rightly kept or "
        "removed. FPR: honest clients removed. FNR: attackers not removed. Rounds to removal: of those that "
        "were.",
    ]
    return Table(["method", "attack", *DETECTION.values()], rows, f"{panel.title}: detection", notes)


def _detection(panel: Panel, method: str, attack: str) -> list[Value]:
    found = [panel.estimate(method, attack, figure) for figure in DETECTION]
    return [None if estimate is None else estimate.mean for estimate in found]


def heading(attack: str) -> str:
    """Return what a table calls an attack."""
    return "no attack" if attack == NO_ATTACK else attack


def _headings(panel: Panel) -> list[str]:
    return [heading(attack) for attack in panel.columns]


def _over(seeds: Sequence[str]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]} alone, so there is no interval"
    return f"mean over {plural(len(seeds), 'seed')} ({', '.join(seeds)}) ± half of its 95 % interval"


def _mean(estimate: Estimate | None, seeds: int) -> str | None:
    """Return "93.1 ± 0.4", with marks, and with how many seeds it is over if some are missing."""
    if estimate is None:
        return None
    half = "" if estimate.half_width is None else f" ± {estimate.half_width:.1f}"
    return f"{estimate.mean:.1f}{half}{marks(estimate, len(estimate.seeds))}{_fewer(estimate, seeds)}"


def _worst(worst: Worst | None, seeds: int) -> str | None:
    if worst is None:
        return None
    return f"{'' if worst.complete else '≤ '}{_mean(worst.estimate, seeds)}, {worst.attack}"


def _difference(difference: Difference | None, seeds: int) -> str | None:
    """Return "−3.2 [−5.1, −1.0]", with marks, and with how many seeds it is over if some are missing."""
    if difference is None:
        return None
    interval = ""
    if difference.interval is not None:
        interval = " [{}, {}]".format(*map(_signed, difference.interval))
    star = "*" if difference.p_holm < SIGNIFICANT else ""
    behind = marks(difference, 2 * len(difference.seeds)) + _fewer(difference, seeds)
    return f"{_signed(difference.mean)}{interval}{star}{behind}"


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}".replace("-", "−")


def marks(found: Estimate | Difference, runs: int) -> str:
    """Return † and ‡ if any of so many runs diverged or stopped, with how many unless all did."""
    marked = (("†", found.diverged), ("‡", found.stopped))
    return "".join(f" {mark}{count if count < runs else ''}" for mark, count in marked if count)


def _fewer(found: Estimate | Difference, seeds: int) -> str:
    return f" ({len(found.seeds)} of {seeds})" if len(found.seeds) < seeds else ""


def _bound_notes(found: Iterable[Worst | None]) -> list[str]:
    bound = any(worst is not None and not worst.complete for worst in found)
    return ["≤ at most that, since an attack is missing."] * bound


def _p_note(panel: Panel) -> str:
    """Say what a star means, and if so few seeds cannot earn one."""
    seeds, family = len(panel.seeds), len(panel.columns)
    if seeds == 1:
        return "One seed has neither an interval nor a p-value."
    note = f"A star: p < {SIGNIFICANT} by the sign-flip test, after Holm's correction over the line."
    if family * smallest_p(seeds) < SIGNIFICANT:
        return note
    return f"{note} With {plural(seeds, 'seed')} no p is below 2/{2**seeds}: too few for a star."


def _marks_notes(found: Iterable[Estimate | Difference | None]) -> list[str]:
    """Return the notes on what is missing and on the marks, as far as they are in the table."""
    every = list(found)
    there = [one for one in every if one is not None]
    notes: Mapping[str, bool] = {
        MISSING: len(there) < len(every),
        DIVERGED: any(one.diverged for one in there),
        STOPPED: any(one.stopped for one in there),
    }
    return [note for note, needed in notes.items() if needed]
