"""The tables of a panel: accuracy by attack, differences to one method, the worst clients, detection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fedcap.errors import plural
from fedcap.files import Value
from fedcap.report.panel import NO_ATTACK, Difference, Estimate, Panel, Worst, attack_title
from fedcap.report.statistics import LEAST_FOR_INTERVAL
from fedcap.report.tables import Table

FIGURES = {
    "tacc": "accuracy, the better of shared and personal",
    "tacc_shared": "accuracy of the models that clients receive",
    "tacc_personal": "accuracy of the clients' personal models",
    "tacc_worst_client": "accuracy of the worst client",
    "tacc_p10": "accuracy that nine of ten clients reach",
}
"""The figures that can be compared, each in percent of the honest clients' test samples."""
SIGNIFICANT = 0.05
LEAST_FOR_STAR = 6
"""With fewer seeds no p-value of the sign-flip test is below 0.05: stars are not mentioned."""
MISSING = "– has not finished, or has no such figure."
DIVERGED = (
    "† diverged: weights of honest clients became NaN or infinite, and accuracy means little. The mean "
    "includes these runs. A number after † is their count, if not all runs diverged."
)
STOPPED = (
    "‡ stopped: every client was removed. The mean includes these runs. A number after ‡ is their count, if "
    "not all runs stopped."
)
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
            *(_mean_text(estimates[method, attack], len(panel.seeds)) for attack in panel.columns),
            *([_worst_text(worst[method], len(panel.seeds))] if several else []),
        ]
        for method in panel.methods
    ]
    notes = [
        f"In percent of the honest clients' test samples, in the last round: {_over(panel.seeds)}.",
        *["Worst attack: the lowest mean over the attacks."] * several,
        *_bound_notes(worst.values()),
        *_mark_notes(estimates.values()),
    ]
    columns = ["method", *_headings(panel), *["worst attack"] * several]
    return Table(columns, rows, f"{panel.title}: {FIGURES[figure]}", notes)


def difference_table(panel: Panel, against: str, figure: str = "tacc") -> Table:
    """Return a line per other method: its mean difference to `against` under each attack."""
    found = {
        method: panel.differences(method, against, figure) for method in panel.methods if method != against
    }
    rows: list[list[Value]] = [
        [method, *(_difference_text(own.get(attack), len(panel.seeds)) for attack in panel.columns)]
        for method, own in found.items()
    ]
    every = [own.get(attack) for own in found.values() for attack in panel.columns]
    shown = " ± half of its 95 % interval" if len(panel.seeds) >= LEAST_FOR_INTERVAL else ""
    star = f"A star: p < {SIGNIFICANT} by the sign-flip test, after Holm's correction over the line."
    notes = [
        f"Points above {against}: the mean difference over the seeds that both have{shown}.",
        *[star] * (len(panel.seeds) >= LEAST_FOR_STAR),
        *_mark_notes(every),
    ]
    return Table(["method", *_headings(panel)], rows, f"{panel.title}: difference to {against}", notes)


def clients_table(panel: Panel) -> Table:
    """Return a line per method: its worst client and 10th percentile, without attack and under the worst."""
    figures = {"tacc_worst_client": "worst client", "tacc_p10": "10th percentile"}
    seeds, has_calm = len(panel.seeds), NO_ATTACK in panel.columns
    columns = ["method"]
    for name in figures.values():
        columns += [f"{name}, no attack"] * has_calm + [f"{name}, worst attack"] * bool(panel.attacks)
    rows: list[list[Value]] = []
    shown: list[Estimate | None] = []
    worsts: list[Worst | None] = []
    for method in panel.methods:
        rows.append([method])
        for figure in figures:
            if has_calm:
                shown.append(panel.estimate(method, NO_ATTACK, figure))
                rows[-1].append(_mean_text(shown[-1], seeds))
            if panel.attacks:
                worsts.append(worst := panel.worst(method, figure))
                shown.append(None if worst is None else worst.estimate)
                rows[-1].append(_worst_text(worst, seeds))
    notes = [
        "Accuracy of the honest client with the lowest accuracy, and the accuracy that nine of ten honest "
        f"clients reach: {_over(panel.seeds)}. The worst attack is that of each figure.",
        *_bound_notes(worsts),
        *_mark_notes(shown),
    ]
    return Table(columns, rows, f"{panel.title}: the worst clients", notes)


def detection_table(panel: Panel) -> Table | None:
    """Return a line per detecting method and attack, and one over all attacks; none if no method detects."""
    rows: list[list[Value]] = []
    for method in panel.methods:
        lines = {attack: _detection(panel, method, attack) for attack in panel.columns}
        if any(value is not None for line in lines.values() for value in line):
            overall: list[Value] = [panel.under_attack(method, figure) for figure in DETECTION]
            rows += [[method, "all attacks", *overall]] if len(panel.attacks) > 1 else []
            rows += [[method, attack_title(attack), *line] for attack, line in lines.items()]
    if not rows:
        return None
    notes = [
        "Means over the finished runs; the first three in percent. DAcc: malicious clients removed and "
        "honest ones kept. FPR: honest clients removed. FNR: malicious clients not removed. Rounds to "
        "removal: of malicious clients that were removed.",
    ]
    return Table(["method", "attack", *DETECTION.values()], rows, f"{panel.title}: detection", notes)


def _detection(panel: Panel, method: str, attack: str) -> list[Value]:
    found = [panel.estimate(method, attack, figure) for figure in DETECTION]
    return [None if estimate is None else estimate.mean for estimate in found]


def _headings(panel: Panel) -> list[str]:
    return [attack_title(attack) for attack in panel.columns]


def _over(seeds: Sequence[str]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    interval = " ± half of its 95 % interval" if len(seeds) >= LEAST_FOR_INTERVAL else ""
    return f"mean over {plural(len(seeds), 'seed')} ({', '.join(seeds)}){interval}"


def _mean_text(estimate: Estimate | None, seeds: int) -> str | None:
    """Return "93.1 ± 0.4", with marks, and with the number of seeds if some are missing."""
    if estimate is None:
        return None
    behind = marks(estimate, len(estimate.seeds)) + _fewer(estimate, seeds)
    return f"{estimate.mean:.1f}{_half_text(estimate)}{behind}"


def _worst_text(worst: Worst | None, seeds: int) -> str | None:
    if worst is None:
        return None
    return f"{'' if worst.complete else '≤ '}{_mean_text(worst.estimate, seeds)}, {worst.attack}"


def _difference_text(difference: Difference | None, seeds: int) -> str | None:
    """Return "−3.2 ± 1.9", with marks, and with the number of seeds if some are missing."""
    if difference is None:
        return None
    star = "*" if difference.p_holm < SIGNIFICANT else ""
    behind = marks(difference, 2 * len(difference.seeds)) + _fewer(difference, seeds)
    return f"{_signed(difference.mean)}{_half_text(difference)}{star}{behind}"


def _half_text(found: Estimate | Difference) -> str:
    return "" if found.half_width is None else f" ± {found.half_width:.1f}"


def _signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}".replace("-", "−")


def marks(found: Estimate | Difference, runs: int) -> str:
    """Return † and ‡ if any of this number of runs diverged or stopped, with the count unless all did."""
    marked = (("†", found.diverged), ("‡", found.stopped))
    return "".join(f" {mark}{count if count < runs else ''}" for mark, count in marked if count)


def _fewer(found: Estimate | Difference, seeds: int) -> str:
    return f" ({len(found.seeds)} of {seeds})" if len(found.seeds) < seeds else ""


def _bound_notes(found: Iterable[Worst | None]) -> list[str]:
    is_bound = any(worst is not None and not worst.complete for worst in found)
    return ["≤ upper bound: an attack is missing."] * is_bound


def _mark_notes(found: Iterable[Estimate | Difference | None]) -> list[str]:
    """Return the notes on missing values and on the marks, if they are in the table."""
    every = list(found)
    there = [one for one in every if one is not None]
    notes: Mapping[str, bool] = {
        MISSING: len(there) < len(every),
        DIVERGED: any(one.diverged for one in there),
        STOPPED: any(one.stopped for one in there),
    }
    return [note for note, needed in notes.items() if needed]
