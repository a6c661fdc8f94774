"""Pictures, from the results of runs."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedcap.report.tables import DemoRow
from fedcap.simulation.record import Result

LOCAL, FEDAVG, FINE_TUNED, FEDCAP = "#9aa0a6", "#d9822b", "#f0c27b", "#1f6fb2"
ATTACKER = "#c0392b"


def draw_demo(
    rows: list[DemoRow], fedavg: Result, fedcap: Result, creeping: Result, threshold: float, path: Path
) -> None:
    """Draw the demo: accuracy by attack, accuracy over the rounds of IPM, and norms over those of Min-Max."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    by_attack, over_rounds, norms = figure.subplots(1, 3, width_ratios=[1.6, 1, 1])
    _bars(by_attack, rows)
    _curves(over_rounds, fedavg, fedcap)
    _norms(norms, creeping, threshold)
    for axes in (by_attack, over_rounds, norms):
        axes.spines[["top", "right"]].set_visible(False)
    aside = path.with_name(f".{path.name}.partial")
    figure.savefig(aside, dpi=130, format="png")
    aside.replace(path)


def _bars(axes: Axes, rows: list[DemoRow]) -> None:
    series = [
        ("Local (alone)", LOCAL, [row.local for row in rows]),
        ("FedAvg", FEDAVG, [row.fedavg for row in rows]),
        ("FedAvg fine-tuned", FINE_TUNED, [row.fedavg_ft for row in rows]),
        ("FedCAP", FEDCAP, [row.fedcap for row in rows]),
    ]
    width = 0.8 / len(series)
    for place, (label, colour, values) in enumerate(series):
        at = [group - 0.4 + (place + 0.5) * width for group in range(len(rows))]
        axes.bar(at, values, width, label=label, color=colour)
    axes.set_xticks(range(len(rows)), [row.attack.replace("none", "no attack") for row in rows])
    axes.set_ylim(0, 100)
    axes.set_ylabel("test accuracy of honest clients, %")
    axes.set_title("Accuracy by attack")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=4, frameon=False, fontsize=9)


def _curves(axes: Axes, fedavg: Result, fedcap: Result) -> None:
    for label, colour, result in (("FedAvg", FEDAVG, fedavg), ("FedCAP", FEDCAP, fedcap)):
        points = [(r.round, r.accuracy.best) for r in result.history if r.accuracy is not None]
        axes.plot(*zip(*points, strict=True), color=colour, label=label, linewidth=2)
    axes.set_ylim(0, 100)
    axes.set_xlabel("round")
    axes.set_title("Accuracy under IPM, %")
    axes.legend(frameon=False, loc="center right")


def _norms(axes: Axes, fedcap: Result, threshold: float) -> None:
    """Draw each client's calibrated norm over the rounds, to the round in which it was removed."""
    axes.axhline(threshold, color="black", linestyle="--", linewidth=1)
    for client in fedcap.clients:
        points = [
            (record.round, norm)
            for record in fedcap.history
            if (norm := record.norms.get(client.id)) is not None
        ]
        if points:
            colour = ATTACKER if client.malicious else FEDCAP
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=1, alpha=0.7)
            if client.removed is not None:
                axes.plot(*points[-1], "x", color=colour)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("round")
    axes.set_title("Calibrated norms under Min-Max\n(red: attackers, to their removal)")
