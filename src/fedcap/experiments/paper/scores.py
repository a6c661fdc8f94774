"""What each score can tell: how far attackers and honest clients are apart by it if nobody is removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from fedcap.experiments.comparison import Comparison
from fedcap.experiments.paper.asked import PUBLISHED
from fedcap.files import Value
from fedcap.report.panel import Finished, Panel
from fedcap.report.tables import Table
from fedcap.runs import Outcome

WATCHED = "nobody removed"
STEPS = [step / 50 for step in range(51)]

CURVES = """## What each score can tell

How often an attacker's score is above an honest client's, in percent, each at its largest over the run: 100
is a perfect detector, 50 a coin. Here nobody is removed, so that attackers go on to the end. The curves have
the share of attackers found at each share of honest clients accused."""


def roc_curves(found: Finished) -> dict[str, Callable[[Path], list[Path]]]:
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


def separation(lower: Sequence[float], higher: Sequence[float]) -> float | None:
    """Return the area under the ROC curve; none without values of both kinds."""
    from sklearn.metrics import roc_auc_score

    if not lower or not higher:
        return None
    return float(roc_auc_score([0] * len(lower) + [1] * len(higher), [*lower, *higher]))


def caught(lower: Sequence[float], higher: Sequence[float], share: float) -> float | None:
    """Return the height of the ROC curve at a share of the lower kind; none without values of both kinds."""
    from sklearn.metrics import roc_curve

    if not lower or not higher:
        return None
    accused, found, _ = roc_curve([0] * len(lower) + [1] * len(higher), [*lower, *higher])
    return float(found[accused <= share + 1e-9].max())


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
