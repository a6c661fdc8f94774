"""Figures of a grid: methods × attacks, accuracy over rounds, and each method at its worst."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedcap.report import charts
from fedcap.report.saving import save
from fedcap.report.story.story import Field, Map, Panel, Story
from fedcap.report.style import COLOURS, LINES, bare, legend, legend_columns, numbers

Curve = tuple[Sequence[int], np.ndarray]


def draw_map(grid: Map, path: Path) -> list[Path]:
    """Draw methods × attacks, with mean and interval in each field."""
    return _each(grid, path, _map)


def curves(grid: Map, path: Path) -> list[Path]:
    """Draw the accuracy of each method over the rounds, a part for each attack: the mean over seeds."""
    return _each(grid, path, lambda panel, to: _curves(panel, grid.cells, to))


def worst(grid: Map, path: Path) -> list[Path]:
    """Draw each method without attack, and under the attack that hurts it most."""
    return _each(grid, path, _worst)


def _each(grid: Map, path: Path, draw: Callable[[Panel, Path], list[Path]]) -> list[Path]:
    """Draw every panel; if there are several, each has its title in the file's name."""
    if len(grid.panels) == 1:
        return draw(grid.panels[0], path)
    ending = path.suffix if path.suffix in (".png", ".pdf", ".svg") else ""
    stem = path.name.removesuffix(ending)
    written = []
    for panel in grid.panels:
        called = re.sub(r"[^\w.]+", "-", f"{stem}-{panel.title}").strip("-")
        written += draw(panel, path.with_name(called + ending))
    return written


def _map(panel: Panel, path: Path) -> list[Path]:
    values = [[_mean(field) for field in line] for line in panel.fields]
    marks = [[_mark(field) for field in line] for line in panel.fields]
    title = f"{panel.title}: accuracy, %"
    return charts.draw_map(panel.methods, panel.attacks, values, path, title, marks)


def _mean(field: Field | None) -> charts.Mean | None:
    return None if field is None or field.mean is None else (field.mean, field.half_width)


def _mark(field: Field | None) -> str:
    return "" if field is None else "†" * bool(field.diverged) + "‡" * bool(field.stopped)


def _worst(panel: Panel, path: Path) -> list[Path]:
    calm = [line[0] if panel.attacks[0] == "no attack" else None for line in panel.fields]
    hurt = [None if at is None else line[at] for line, at in zip(panel.fields, panel.worst, strict=True)]
    names = ["" if at is None else panel.attacks[at] for at in panel.worst]
    labels = [f"{method}\n{name}" for method, name in zip(panel.methods, names, strict=True)]
    series = {"no attack": [_mean(field) for field in calm], "worst attack": [_mean(field) for field in hurt]}
    kept = {name: means for name, means in series.items() if any(means)}
    marks = {"no attack": list(map(_mark, calm)), "worst attack": list(map(_mark, hurt))}
    return charts.draw_bars(labels, kept, path, title=panel.title, marks=marks)


def _curves(panel: Panel, cells: Sequence[Story], path: Path) -> list[Path]:
    count = len(panel.attacks)
    across = count if count <= 4 else min(4, math.ceil(math.sqrt(count)))
    down = -(-count // across)
    wide = max(4.4, 2.6 * across)
    named = -(-len(panel.methods) // legend_columns(wide, panel.methods))
    figure = Figure(figsize=(wide, 2.3 * down + 0.3 + 0.18 * named), layout="constrained")
    parts = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for place, axes in enumerate(parts.flat):
        if place >= count:
            axes.set_axis_off()
            continue
        for turn, (method, line) in enumerate(zip(panel.methods, panel.fields, strict=True)):
            found = _over_seeds([cells[cell] for cell in line[place].cells])
            style = {
                "color": COLOURS[turn % len(COLOURS)],
                "linestyle": LINES[(turn + turn // len(COLOURS)) % len(LINES)],
            }
            rounds, means = found or ([], np.array([]))  # so that it is in the legend all the same
            axes.plot(rounds, means, linewidth=1.5, label=method, **style)
        axes.set_ylim(0, 100)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        lowest = place + across >= count
        axes.tick_params(labelbottom=lowest)
        bare(axes, "round" * lowest, "test accuracy, %" * (place % across == 0), panel.attacks[place])
    legend(figure, parts[0, 0])
    return save(figure, path)


def _over_seeds(runs: Sequence[Story]) -> Curve | None:
    """Return the mean over runs of their better reading, in the rounds that all of them measured."""
    found = [curve for run in runs if (curve := _curve(run)) is not None]
    if not found:
        return None
    common = sorted(set.intersection(*(set(rounds) for rounds, _ in found)))
    lines = [[means[list(rounds).index(number)] for number in common] for rounds, means in found]
    return common, np.asarray(lines, dtype=float).mean(axis=0)


def _curve(run: Story) -> Curve | None:
    """Return the accuracy over rounds in the reading that is better in the end."""
    measured = None if run.course is None else run.course.accuracy
    if measured is None or not measured.rounds:
        return None
    personal = numbers(measured.personal.mean)
    shared = None if measured.shared is None else numbers(measured.shared.mean)
    better = shared if shared is not None and not shared[-1] <= personal[-1] else personal
    return measured.rounds, np.asarray(better)
