"""What each score can tell: how far attackers and honest clients are apart by it if nobody is removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from fedcap.experiments.cells import Found
from fedcap.experiments.comparison import Comparison
from fedcap.experiments.panel import Panel
from fedcap.experiments.paper.asked import PUBLISHED
from fedcap.experiments.statistics import caught, separation
from fedcap.files import Value
from fedcap.report.tables import Table
from fedcap.runs import Outcome

WATCHED = "nobody removed"
STEPS = [step / 50 for step in range(51)]

CURVES = """## What each score can tell

How often an attacker's score is above an honest client's, in percent, each at its largest over the run: 100
is a perfect detector, 50 a coin. Here nobody is removed, so that attackers go on to the end. The curves have
the share of attackers found at each share of honest clients accused."""


def roc_curves(found: Found) -> dict[str, Callable[[Path], list[Path]]]:
    """Return what draws each picture: a curve per score, over published attacks and over adaptive ones."""
    panel = Comparison.of(found).panels[0]
    adaptive = [attack for attack in panel.attacks if attack not in PUBLISHED]
    groups = {"published": [a for a in panel.attacks if a in PUBLISHED], "adaptive": adaptive}
    return {name: partial(_draw, panel, f"{name} attacks", group) for name, group in groups.items() if group}


def _draw(panel: Panel, title: str, attacks: Sequence[str], path: Path) -> list[Path]:
    from fedcap.report.charts import draw_curves

    runs = [run for attack in attacks for run in panel.of(WATCHED, attack).values()]
    series: dict[str, list[float | None]] = {}
    for score in _scores(runs):
        benign, malicious = _peaks(runs, score)
        series[score] = [_percent(caught(benign, malicious, step)) for step in STEPS]
    shares = [100 * step for step in STEPS]
    return draw_curves(
        shares, series, path, "honest clients accused, %", "attackers found, %", title=f"ROC, {title}"
    )


def separations(panel: Panel) -> Table:
    """Return how often an attacker's score is above an honest client's, by attack and score."""
    scores = _scores(run for attack in panel.attacks for run in panel.of(WATCHED, attack).values())
    rows: list[list[Value]] = []
    for attack in panel.attacks:
        runs = panel.of(WATCHED, attack).values()
        rows.append([attack, *(_percent(separation(*_peaks(runs, score))) for score in scores)])
    return Table(["attack", *scores], rows)


def _scores(runs: Iterable[Outcome]) -> list[str]:
    return list(dict.fromkeys(score for run in runs for score in run.peaks))


def _peaks(runs: Iterable[Outcome], score: str) -> tuple[list[float], list[float]]:
    """Return the peaks of a score over all runs, of honest clients and of attackers."""
    there = [run.peaks[score] for run in runs if score in run.peaks]
    return [v for peak in there for v in peak.benign], [v for peak in there for v in peak.malicious]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
