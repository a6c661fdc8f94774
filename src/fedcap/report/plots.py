"""Figures for papers, drawn from a report: `plots_of` returns those that a report has data for.

A plot of a grid with several tables is one file per table. `draw_demo` draws the figure of the demo.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedcap.errors import InputError
from fedcap.report import charts
from fedcap.report.charts import (
    COLOURS,
    HATCHES,
    HONEST,
    LINES,
    MALICIOUS,
    MISSING,
    legend,
    numbers,
    save,
    style_axes,
)
from fedcap.report.model import (
    AttackCurves,
    Client,
    Costs,
    GridCell,
    GridData,
    GridTable,
    MixingMap,
    Report,
    RunData,
    ScoreCurves,
    Spread,
)
from fedcap.report.panel import NO_ATTACK, attack_title

WIDTH, HEIGHT = 5.2, 3.4
"""Inches of a figure, or of a part of one."""
WIDE_RANGE = 20
"""If the highest score is this many times the median score, the axis is logarithmic."""
MAX_NAMES = 40
"""How many clients' names fit along an axis."""
MAX_NAME = 20

Curve = tuple[Sequence[int], np.ndarray]
Draw = Callable[[Path], list[Path]]


@dataclass(frozen=True)
class Plot:
    """One figure that can be drawn from a report."""

    name: str
    description: str
    draw_all: Draw
    """Draw it as PNG, PDF or SVG, by the path's ending, otherwise as all three; return the files."""
    draw_rounds: Callable[[Path, Sequence[int]], list[Path]] | None = None
    """Draw only some rounds; None for a figure that always shows all rounds."""
    rounds: Sequence[int] = ()
    """The rounds to choose from."""

    def draw(self, path: Path, rounds: Sequence[int] | None = None) -> list[Path]:
        """Draw the figure, of these rounds or of all, and return the files."""
        if rounds is None:
            return self.draw_all(path)
        if self.draw_rounds is None:
            raise InputError(f"{self.name} shows all rounds: do not choose rounds", code="bad-option")
        for number in rounds:
            if number not in self.rounds:
                known = f"{self.rounds[0]} to {self.rounds[-1]}" if self.rounds else "none"
                raise InputError(f"{self.name} has no round {number} (it has {known})", code="unknown-round")
        return self.draw_rounds(path, rounds)


def plots_of(report: Report) -> dict[str, Plot]:
    """Return the figures that a report has data for, by name."""
    found = [] if report.run is None else [*_run_plots(report.run)]
    if report.grid is not None and report.grid.tables:
        found += _grid_plots(report.grid)
    return {plot.name: plot for plot in found}


def _run_plots(run: RunData) -> Iterator[Plot]:
    if run.accuracy is not None:
        yield Plot("accuracy", "accuracy per round: mean, worst and best client", partial(_accuracy, run))
    if run.scores:
        yield Plot("scores", "detection scores of each client, and the limit", partial(_scores, run))
    if run.mixing is not None:
        first, middle, last = (run.mixing.rounds[at] for at in (0, len(run.mixing.rounds) // 2, -1))
        draw = partial(_mixing, run.clients, run.mixing)
        few = partial(draw, rounds=list(dict.fromkeys((first, middle, last))))
        yield Plot("mixing", "mixing weights, in a few rounds", few, draw, run.mixing.rounds)
    if run.attack is not None:
        yield Plot("attack", "malicious updates compared with honest ones", partial(_attack, run.attack))
    if any(client.personal is not None for client in run.clients):
        yield Plot("clients", "the accuracy of each client", partial(_clients, run.clients))
    if run.costs is not None:
        yield Plot("cost", "seconds of each round by part, and megabytes", partial(_cost, run.costs))


def _grid_plots(grid: GridData) -> Iterator[Plot]:
    yield Plot(
        "map", "methods × attacks with intervals († diverged, ‡ stopped early)", partial(_each, grid, _map)
    )
    if any(run.run is not None and run.run.accuracy for run in grid.runs):
        curves = partial(_curves, grid.runs)
        yield Plot(
            "curves", "accuracy per round of each method, under each attack", partial(_each, grid, curves)
        )
    yield Plot("worst", "each method without attack and under its worst attack", partial(_each, grid, _worst))


def _accuracy(run: RunData, path: Path) -> list[Path]:
    """Draw the mean over all test samples, and the band from the worst to the best client."""
    curves = run.accuracy
    assert curves is not None
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = figure.subplots()
    _spread(axes, curves.rounds, curves.personal, "personal", 0)
    if curves.shared is not None:
        _spread(axes, curves.rounds, curves.shared, "shared", 1)
    if run.local is not None:
        axes.plot(run.local.rounds, numbers(run.local.mean), color="black", linestyle=":", label="Local")
    axes.set_ylim(0, 100)
    _over_rounds(axes, "test accuracy, %")
    legend(figure, axes)
    return save(figure, path)


def _spread(axes: Axes, rounds: Sequence[int], spread: Spread, name: str, index: int) -> None:
    mean, low, high = map(numbers, (spread.mean, spread.worst, spread.best))
    (line,) = axes.plot(rounds, mean, color=COLOURS[index], linestyle=LINES[index], label=f"{name}, mean")
    line.set(linewidth=1.8, marker="o" if len(rounds) == 1 else "")
    band = f"{name}, worst to best client"
    axes.fill_between(rounds, low, high, color=COLOURS[index], alpha=0.15, linewidth=0, label=band)


def _scores(run: RunData, path: Path) -> list[Path]:
    """Draw each client's scores up to the round of its removal, one part per detector."""
    count = len(run.scores)
    figure = Figure(figsize=(max(WIDTH, 3.6 * count), HEIGHT), layout="constrained")
    for axes, curves in zip(figure.subplots(1, count, squeeze=False).flat, run.scores, strict=True):
        _score(axes, run.clients, curves)
    legend(figure, figure.axes[0])
    return save(figure, path)


def _score(axes: Axes, clients: Sequence[Client], curves: ScoreCurves) -> None:
    values = np.asarray(curves.values, dtype=float)
    rounds = np.asarray(curves.rounds)

    def once(label: str) -> str | None:
        return None if label in axes.get_legend_handles_labels()[1] else label

    for client, line in zip(clients, values, strict=True):
        known = np.flatnonzero(np.isfinite(line))
        if not known.size:
            continue
        malicious = client.role == "malicious"
        colour, style = (MALICIOUS, "--") if malicious else (HONEST, "-")
        who = "sites" if client.role == "site" else f"{client.role} clients"
        axes.plot(rounds, line, color=colour, linestyle=style, linewidth=0.9, alpha=0.75, label=once(who))
        if client.removed is not None:
            last, removed = known[-1], once(f"{who}, removed")
            axes.plot(rounds[last], line[last], "x", color=colour, markersize=6, label=removed)
    limits = numbers(curves.limits)
    axes.plot(rounds, limits, color="black", linestyle=":", linewidth=1.4, label=once("limit"))
    finite = values[np.isfinite(values)]
    if finite.size and finite.min() > 0 and finite.max() > WIDE_RANGE * np.median(finite):
        axes.set_yscale("log")
    _over_rounds(axes, curves.name)


def _mixing(clients: Sequence[Client], mixing: MixingMap, path: Path, rounds: Sequence[int]) -> list[Path]:
    """Draw the mixing weights of these rounds."""
    size = min(4.5, max(2.6, 0.11 * len(mixing.rows)))
    figure = Figure(figsize=(size * len(rounds) + 1.0, size + 0.5), layout="constrained")
    parts = figure.subplots(1, len(rounds), squeeze=False, sharey=True).flat
    maps = [np.asarray(mixing.weights[list(mixing.rounds).index(number)], dtype=float) for number in rounds]
    top = max((float(np.nanmax(one)) for one in maps if np.isfinite(one).any()), default=1.0)
    for number, weights, axes in zip(rounds, maps, parts, strict=True):
        image = axes.imshow(weights, vmin=0, vmax=top or 1.0, cmap=charts.COLOUR_MAP, interpolation="nearest")
        axes.set_facecolor(MISSING)
        axes.set_title(f"round {number}", fontsize=10)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        _name_rows(axes, clients, mixing.rows)
    figure.axes[0].set_ylabel("model of")
    malicious = any(clients[at].role == "malicious" for row in mixing.rows for at in row)
    absent = any(np.isnan(one).any() for one in maps)
    marks = "; ".join(["▲ malicious"] * malicious + ["grey: did not take part"] * absent)
    figure.supxlabel(f"mixed from{f' ({marks})' if marks else ''}", fontsize=10)
    figure.colorbar(image, ax=figure.axes, shrink=0.8, label="weight").outline.set_visible(False)
    return save(figure, path)


def _name_rows(axes: Axes, clients: Sequence[Client], rows: Sequence[Sequence[int]]) -> None:
    """Write the clients' names along both axes, if each has its own row and they are few."""
    if len(rows) > MAX_NAMES or any(len(row) > 1 for row in rows):
        axes.set_xticks([])
        axes.set_yticks([])
        return
    own = [clients[row[0]] for row in rows]
    names = [f"{one.name[:MAX_NAME]}{' ▲' if one.role == 'malicious' else ''}" for one in own]
    size = 7 if len(rows) <= 24 else 5
    axes.set_xticks(range(len(names)), names, fontsize=size, rotation=90, parse_math=False)
    axes.set_yticks(range(len(names)), names, fontsize=size, parse_math=False)


def _attack(curves: AttackCurves, path: Path) -> list[Path]:
    """Draw the length of the malicious updates and their cosine to the honest mean."""
    figure = Figure(figsize=(1.5 * WIDTH, HEIGHT), layout="constrained")
    lengths, cosines = figure.subplots(1, 2)
    for label, values, colour, style in (
        ("malicious updates, mean", curves.length, MALICIOUS, "^--"),
        ("mean of the honest updates", curves.honest_length, HONEST, "o-"),
    ):
        lengths.plot(curves.rounds, numbers(values), style, color=colour, markersize=3, label=label)
    if all(value is None or value > 0 for value in (*curves.length, *curves.honest_length)):
        lengths.set_yscale("log")
    _over_rounds(lengths, "length of the update")
    cosines.plot(curves.rounds, numbers(curves.cosine), "^--", color=MALICIOUS, markersize=3)
    cosines.set_ylim(-1.05, 1.05)
    _over_rounds(cosines, "cosine to the honest mean")
    legend(figure, lengths)
    return save(figure, path)


def _clients(clients: Sequence[Client], path: Path) -> list[Path]:
    """Draw the accuracy of each client in the last evaluated round, the worst first."""
    tested = [client for client in clients if client.personal is not None]
    tested.sort(key=lambda client: max(client.personal or 0.0, client.shared or 0.0))
    figure = Figure(figsize=(max(WIDTH, min(12.0, 0.2 * len(tested) + 1)), HEIGHT), layout="constrained")
    axes = figure.subplots()
    size = 5 if len(tested) <= MAX_NAMES else 2
    for index, (reading, label, marker, colour) in enumerate(
        (
            ("personal", "personal", "o", COLOURS[0]),
            ("shared", "shared", "s", COLOURS[1]),
            ("local", "Local", "_", "black"),
        )
    ):
        values = [getattr(client, reading) for client in tested]
        if any(value is not None for value in values):
            at = [place + 0.2 * (index - 0.5) for place in range(len(tested))]
            axes.plot(at, numbers(values), marker, color=colour, markersize=size, label=label)
    for place, client in enumerate(tested):
        if client.removed is not None:
            axes.axvline(place, color=MALICIOUS, linestyle=":", linewidth=1)
            axes.annotate("removed", (place, 2), rotation=90, ha="right", fontsize=7, color=MALICIOUS)
    axes.set_ylim(0, 102)
    if len(tested) <= MAX_NAMES:
        names = [client.name[:MAX_NAME] for client in tested]
        turned = 90 if charts.longest(names) > 3 else 0
        axes.set_xticks(range(len(tested)), names, fontsize=7, rotation=turned, parse_math=False)
    else:
        axes.set_xticks([])
    style_axes(axes, "client, the worst first", "test accuracy, %")
    legend(figure, axes)
    return save(figure, path)


def _cost(costs: Costs, path: Path) -> list[Path]:
    """Draw the seconds of each round by part, stacked, and the megabytes that were sent."""
    figure = Figure(figsize=(1.5 * WIDTH, HEIGHT), layout="constrained")
    seconds, sent = figure.subplots(1, 2)
    bottom = np.zeros(len(costs.rounds))
    for index, part in enumerate(("train", "evaluate", "attack", "server")):
        values = np.nan_to_num(numbers(getattr(costs, part)))
        if values.any():
            style = {"color": COLOURS[index], "hatch": HATCHES[index], "edgecolor": "white", "linewidth": 0}
            seconds.bar(costs.rounds, values, 1.0, bottom, label=part, **style)
            bottom = bottom + values
    _over_rounds(seconds, "seconds")
    sent.bar(costs.rounds, np.nan_to_num(numbers(costs.bytes)) / 1e6, 1.0, color=COLOURS[-1])
    _over_rounds(sent, "megabytes sent")
    legend(figure, seconds)
    return save(figure, path)


def _over_rounds(axes: Axes, ylabel: str) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    low, high = axes.get_xlim()
    if high - low < 1:  # a single round
        axes.set_xlim(low - 1, high + 1)
    style_axes(axes, "round", ylabel)


def _each(grid: GridData, draw: Callable[[GridTable, Path], list[Path]], path: Path) -> list[Path]:
    """Draw each table; if there are several, the name of each file has the title of its table."""
    if len(grid.tables) == 1:
        return draw(grid.tables[0], path)
    ending = path.suffix if path.suffix in charts.WITHOUT_DATE else ""
    stem = path.name.removesuffix(ending)
    names = [re.sub(r"[^\w.]+", "-", f"{stem}-{table.title}").strip("-") for table in grid.tables]
    return [
        file
        for table, name in zip(grid.tables, names, strict=True)
        for file in draw(table, path.with_name(name + ending))
    ]


def _map(table: GridTable, path: Path) -> list[Path]:
    means = [[_mean(cell) for cell in row] for row in table.cells]
    marks = [[_marks(cell) for cell in row] for row in table.cells]
    return charts.draw_map(table.methods, table.attacks, means, path, f"{table.title}: accuracy, %", marks)


def _mean(cell: GridCell | None) -> charts.Mean | None:
    return None if cell is None or cell.mean is None else (cell.mean, cell.half_width)


def _marks(cell: GridCell | None) -> str:
    return "" if cell is None else "†" * bool(cell.diverged) + "‡" * bool(cell.stopped)


def _worst(table: GridTable, path: Path) -> list[Path]:
    """Draw each method without attack, and under the attack with its lowest mean."""
    calm = attack_title(NO_ATTACK)
    without = [row[0] if table.attacks[0] == calm else None for row in table.cells]
    worst = [None if at is None else row[at] for row, at in zip(table.cells, table.worst, strict=True)]
    names = ["" if at is None else table.attacks[at] for at in table.worst]
    labels = [f"{method}\n{name}" for method, name in zip(table.methods, names, strict=True)]
    drawn = {calm: without, "worst attack": worst}
    series = {name: means for name, cells in drawn.items() if any(means := list(map(_mean, cells)))}
    marks = {name: list(map(_marks, cells)) for name, cells in drawn.items()}
    return charts.draw_bars(labels, series, path, title=table.title, marks=marks)


def _curves(runs: Sequence[Report], table: GridTable, path: Path) -> list[Path]:
    """Draw the accuracy of each method over the rounds, one part per attack: the mean over seeds."""
    count = len(table.attacks)
    across = count if count <= 4 else min(4, math.ceil(math.sqrt(count)))
    down = -(-count // across)
    width = max(4.4, 2.6 * across)
    lines = -(-len(table.methods) // charts.legend_columns(width, table.methods))
    figure = Figure(figsize=(width, 2.3 * down + 0.3 + 0.18 * lines), layout="constrained")
    parts = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for place, axes in enumerate(parts.flat):
        if place >= count:
            axes.set_axis_off()
            continue
        for index, (method, row) in enumerate(zip(table.methods, table.cells, strict=True)):
            found = _over_seeds([runs[run] for run in row[place].runs])
            colour = COLOURS[index % len(COLOURS)]
            line = LINES[(index + index // len(COLOURS)) % len(LINES)]
            rounds, means = found or ([], np.array([]))  # an empty line is in the legend too
            axes.plot(rounds, means, linewidth=1.5, label=method, color=colour, linestyle=line)
        axes.set_ylim(0, 100)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        lowest = place + across >= count
        axes.tick_params(labelbottom=lowest)
        style_axes(axes, "round" * lowest, "test accuracy, %" * (place % across == 0), table.attacks[place])
    legend(figure, parts[0, 0])
    return save(figure, path)


def _over_seeds(runs: Sequence[Report]) -> Curve | None:
    """Return the mean over runs of their better reading, in the rounds that all of them evaluated."""
    found = [curve for run in runs if (curve := _curve(run)) is not None]
    if not found:
        return None
    common = sorted(set.intersection(*(set(rounds) for rounds, _ in found)))
    lines = [[means[list(rounds).index(number)] for number in common] for rounds, means in found]
    return common, np.asarray(lines, dtype=float).mean(axis=0)


def _curve(run: Report) -> Curve | None:
    """Return the accuracy over rounds in the reading that is better in the last round."""
    curves = None if run.run is None else run.run.accuracy
    if curves is None or not curves.rounds:
        return None
    personal = numbers(curves.personal.mean)
    shared = None if curves.shared is None else numbers(curves.shared.mean)
    better = shared if shared is not None and not shared[-1] <= personal[-1] else personal
    return curves.rounds, np.asarray(better)


FEDAVG, FEDCAP = COLOURS[1], COLOURS[0]
DEMO_BARS = {
    "Local": (COLOURS[-1], ""),
    "FedAvg": (FEDAVG, ""),
    "FedAvg fine-tuned": (FEDAVG, "//"),
    "FedCAP": (FEDCAP, ""),
}
"""The colour and the hatch of each method's bars in the figure of the demo."""


def draw_demo(
    attacks: Sequence[str],
    accuracies: Mapping[str, Sequence[float]],
    fedavg: Report,
    fedcap: Report,
    gradual: Report,
    path: Path,
) -> None:
    """Draw the demo: accuracy by attack, accuracy per round under IPM, and norms per round under Min-Max.

    `accuracies` has one value per attack for each method. `fedavg` and `fedcap` are runs under IPM, `gradual`
    is a run of FedCAP under Min-Max.
    """
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    by_attack, per_round, norms = figure.subplots(1, 3, width_ratios=[1.6, 1, 1])
    width = 0.8 / len(accuracies)
    for index, (method, values) in enumerate(accuracies.items()):
        at = [group - 0.4 + (index + 0.5) * width for group in range(len(attacks))]
        colour, hatch = DEMO_BARS[method]
        by_attack.bar(
            at, values, width, label=method, color=colour, hatch=hatch, edgecolor="white", linewidth=0
        )
    by_attack.set_xticks(range(len(attacks)), attacks)
    by_attack.set_ylim(0, 100)
    style_axes(by_attack, "", "test accuracy of honest clients, %", "Accuracy by attack")
    by_attack.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=4, frameon=False, fontsize=9)
    for label, colour, line, run in (("FedAvg", FEDAVG, "--", fedavg), ("FedCAP", FEDCAP, "-", fedcap)):
        per_round.plot(*(_curve(run) or ([], [])), color=colour, linestyle=line, label=label, linewidth=2)
    per_round.set_ylim(0, 100)
    style_axes(per_round, "round", "", "Accuracy under IPM, %")
    per_round.legend(frameon=False, loc="center right")
    if gradual.run is not None and gradual.run.scores:
        _score(norms, gradual.run.clients, gradual.run.scores[0])
        norms.set_ylim(bottom=0)
        norms.set_title("Scores of the clients under Min-Max", fontsize=10)
        norms.legend(frameon=False, fontsize=8)
    save(figure, path)
