"""Pictures, from the results of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedcap.report.saving import save
from fedcap.report.style import ATTACKER, COLOURS, HONEST, bare
from fedcap.runs import Result

FEDAVG, FEDCAP = COLOURS[1], COLOURS[0]
BARS = {
    "Local": (COLOURS[-1], ""),
    "FedAvg": (FEDAVG, ""),
    "FedAvg fine-tuned": (FEDAVG, "//"),
    "FedCAP": (FEDCAP, ""),
}
"""The colour and the hatch of each method's bars."""


def draw_demo(
    attacks: Sequence[str],
    accuracies: Mapping[str, Sequence[float]],
    fedavg: Result,
    fedcap: Result,
    creeping: Result,
    path: Path,
) -> None:
    """Draw the demo: accuracy by attack, accuracy over the rounds of IPM, and norms over those of Min-Max.

    `accuracies` has, for each method, a figure for each attack; `fedavg` and `fedcap` are runs under IPM,
    `creeping` is FedCAP's under Min-Max.
    """
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    by_attack, over_rounds, norms = figure.subplots(1, 3, width_ratios=[1.6, 1, 1])
    _bars(by_attack, attacks, accuracies)
    _curves(over_rounds, fedavg, fedcap)
    _norms(norms, creeping)
    save(figure, path)


def _bars(axes: Axes, attacks: Sequence[str], accuracies: Mapping[str, Sequence[float]]) -> None:
    width = 0.8 / len(accuracies)
    for place, (method, values) in enumerate(accuracies.items()):
        at = [group - 0.4 + (place + 0.5) * width for group in range(len(attacks))]
        label = "Local (alone)" if method == "Local" else method
        colour, hatch = BARS[method]
        axes.bar(at, values, width, label=label, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
    axes.set_xticks(range(len(attacks)), attacks)
    axes.set_ylim(0, 100)
    bare(axes, "", "test accuracy of honest clients, %", "Accuracy by attack")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=4, frameon=False, fontsize=9)


def _curves(axes: Axes, fedavg: Result, fedcap: Result) -> None:
    for label, colour, line, result in (("FedAvg", FEDAVG, "--", fedavg), ("FedCAP", FEDCAP, "-", fedcap)):
        points = [(r.round, r.accuracy.best) for r in result.history if r.accuracy is not None]
        axes.plot(*zip(*points, strict=True), color=colour, linestyle=line, label=label, linewidth=2)
    axes.set_ylim(0, 100)
    bare(axes, "round", "", "Accuracy under IPM, %")
    axes.legend(frameon=False, loc="center right")


def _norms(axes: Axes, fedcap: Result) -> None:
    """Draw each client's calibrated norm over the rounds, to the round in which it was removed."""
    limits = [
        (record.round, limit) for record in fedcap.history if (limit := record.limits.get("norm")) is not None
    ]
    if limits:
        axes.plot(*zip(*limits, strict=True), color="black", linestyle=":", linewidth=1.4)
    for client in fedcap.clients:
        points = [
            (record.round, norm)
            for record in fedcap.history
            if (norm := record.norms.get(client.id)) is not None
        ]
        if points:
            colour = ATTACKER if client.malicious else HONEST
            line = "--" if client.malicious else "-"
            axes.plot(*zip(*points, strict=True), color=colour, linestyle=line, linewidth=1, alpha=0.7)
            if client.removed is not None:
                axes.plot(*points[-1], "x", color=colour)
    axes.set_ylim(bottom=0)
    bare(axes, "round", "", "Calibrated norms under Min-Max\n(dashed: attackers, to their removal)")
