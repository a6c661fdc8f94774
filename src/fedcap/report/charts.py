"""Charts of means with intervals: bars, curves, and a map of methods by attacks.

They are in the style of `report.style`. A path without `.png`, `.pdf` or `.svg` at its end gets all three.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedcap.report.saving import save
from fedcap.report.style import (
    COLOURS,
    FEW_POINTS,
    HATCHES,
    LINES,
    MARKERS,
    finish,
    longest,
    numbers,
    slanted,
)

LIGHT = 0.55
"""Where in the map's colours black letters become easier to read than white ones."""

Mean = tuple[float, float | None]
"""A mean, and half the width of its interval if it has one."""


def draw_bars(
    labels: Sequence[str],
    series: Mapping[str, Sequence[Mean | None]],
    path: Path,
    ylabel: str = "test accuracy, %",
    title: str = "",
    marks: Mapping[str, Sequence[str]] | None = None,
) -> list[Path]:
    """Draw a group of bars per label, a bar per series, with error bars; what is none is a dash.

    `marks` has what is written over the bars of a series: "†" over one that diverged.
    """
    across = max(4.0, 1.2 + 0.23 * (len(series) + 1) * len(labels))
    figure = Figure(figsize=(across, 3.4), layout="constrained")
    axes = figure.subplots()
    width = 0.84 / len(series)
    for turn, (name, means) in enumerate(series.items()):
        at = [place - 0.42 + (turn + 0.5) * width for place in range(len(means))]
        heights = numbers([mean and mean[0] for mean in means])
        halves = numbers([mean and mean[1] for mean in means])
        axes.bar(
            at,
            heights,
            width,
            yerr=halves,
            error_kw={"elinewidth": 0.9, "capsize": min(3.0, 12 * width)},
            label=name,
            color=COLOURS[turn % len(COLOURS)],
            hatch=HATCHES[turn // len(COLOURS) % len(HATCHES)],
            edgecolor="white",
            linewidth=0.5,
        )
        for place, mean in enumerate(means):
            over = "–" if mean is None else marks[name][place] if marks and name in marks else ""
            top = 0.0 if mean is None else mean[0] + (mean[1] or 0.0)
            _write(axes, over, at[place], top)
    axes.set_xticks(range(len(labels)), labels, **slanted(labels, (across - 0.9) / len(labels), "right"))
    axes.set_xlim(-0.55, len(labels) - 0.45)
    axes.set_ylim(bottom=0)
    finish(figure, axes, "", ylabel, title)
    return save(figure, path)


def draw_curves(
    x: Sequence[float],
    series: Mapping[str, Sequence[float | None]],
    path: Path,
    xlabel: str,
    ylabel: str = "test accuracy, %",
    band: Mapping[str, Sequence[float | None]] | None = None,
    title: str = "",
    log: bool = False,
) -> list[Path]:
    """Draw a curve per series, with gaps where it is none; `band` has half the width of its intervals.

    `log` makes the upright axis logarithmic.
    """
    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    axes = figure.subplots()
    few = len(x) <= FEW_POINTS
    for turn, (name, values) in enumerate(series.items()):
        colour = COLOURS[turn % len(COLOURS)]
        heights = numbers(values)
        axes.plot(
            x,
            heights,
            label=name,
            color=colour,
            linestyle=LINES[(turn if not few else turn // len(COLOURS)) % len(LINES)],
            marker=MARKERS[turn % len(MARKERS)] if few else None,
            markersize=5,
            linewidth=1.6,
        )
        if band and band.get(name):
            halves = numbers(band[name])
            if few:
                axes.errorbar(x, heights, halves, fmt="none", ecolor=colour, elinewidth=1, capsize=3)
            else:
                low = [value - half for value, half in zip(heights, halves, strict=True)]
                high = [value + half for value, half in zip(heights, halves, strict=True)]
                axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    if few:
        axes.set_xticks(x, [f"{value:g}" for value in x])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if log:
        axes.set_yscale("log")
    finish(figure, axes, xlabel, ylabel, title)
    return save(figure, path)


def draw_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[Mean | None]],
    path: Path,
    title: str = "",
    marks: Sequence[Sequence[str]] | None = None,
) -> list[Path]:
    """Draw a field per row and column, its colour the mean between 0 and 100, with mean and interval in it.

    What is none is grey. `marks` has what is written behind the means: "†" behind one that diverged.
    """
    figure = Figure(figsize=(1.6 + 0.085 * longest(rows) + 0.72 * len(columns), 1.3 + 0.36 * len(rows)))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    heat = [numbers([mean and mean[0] for mean in line]) for line in values]
    image = axes.imshow(heat, vmin=0, vmax=100, cmap="cividis", aspect="auto", interpolation="nearest")
    axes.set_facecolor("#dddddd")
    for row, line in enumerate(values):
        for column, mean in enumerate(line):
            text, colour = "–", "black"
            if mean is not None:
                text = f"{mean[0]:.1f}{marks[row][column] if marks else ''}"
                text += "" if mean[1] is None else f"\n± {mean[1]:.1f}"
                colour = "black" if mean[0] > 100 * LIGHT else "white"
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour, linespacing=0.95)
    axes.set_xticks(range(len(columns)), columns, fontsize=8, **slanted(columns, 0.9, "left"))
    axes.tick_params(top=True, bottom=False, labeltop=True, labelbottom=False)
    axes.set_yticks(range(len(rows)), rows, fontsize=8, parse_math=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for edge in range(1, len(rows)):
        axes.axhline(edge - 0.5, color="white", linewidth=1)
    for edge in range(1, len(columns)):
        axes.axvline(edge - 0.5, color="white", linewidth=1)
    figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02).outline.set_visible(False)
    if title:
        axes.set_title(title, fontsize=10, parse_math=False)
    return save(figure, path)


def _write(axes: Axes, text: str, x: float, y: float) -> None:
    """Write a mark a little above a point."""
    axes.annotate(text, (x, y), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=7)
