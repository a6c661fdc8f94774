"""Charts of means with intervals (bars, curves, a map of methods by attacks), and the style of all figures.

Colours are those of Okabe and Ito, which colour-blind people can distinguish. Everything that differs in
colour also differs in line style, marker, hatch or position. A path that ends in `.png`, `.pdf` or `.svg`
gets that format; any other path gets all three. The same input always gives the same file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedcap.files import aside

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000", "#999999")
HONEST, MALICIOUS = COLOURS[0], COLOURS[3]
HATCHES = ("", "//", "..", "xx")
LINES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX*"
COLOUR_MAP = "cividis"
LIGHT = 0.55
"""From this place in the colour map on, black text is easier to read than white text."""
MISSING = "#dddddd"
"""The colour of a cell without a value."""
FEW_POINTS = 12
"""Curves of at most this many points have markers and error bars; longer ones have bands."""
DOTS_PER_INCH = 130
WITHOUT_DATE = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
"""The formats, and the metadata to leave out of each, so that the same figure gives the same file."""
REPRODUCIBLE: Any = {"svg.hashsalt": "fedcap", "pdf.fonttype": 42}
"""Names inside an SVG are not random; letters of a PDF remain letters."""

Mean = tuple[float, float | None]
"""A mean, and half the width of its interval if it has one."""


def save(figure: Figure, path: Path) -> list[Path]:
    """Write a figure in the format of the path's ending, or in all formats; return the files.

    An existing file is replaced only when the new one is complete.
    """
    endings = [""] if path.suffix in WITHOUT_DATE else list(WITHOUT_DATE)
    paths = [path.with_name(path.name + ending) for ending in endings]
    for target in paths:
        kind = target.suffix
        with rc_context(REPRODUCIBLE), aside(target) as partial:
            figure.savefig(partial, dpi=DOTS_PER_INCH, format=kind[1:], metadata=WITHOUT_DATE[kind])
    return paths


def numbers(values: Sequence[float | None]) -> list[float]:
    """Return values with NaN in place of None."""
    return [float("nan") if value is None else float(value) for value in values]


def longest(names: Sequence[str]) -> int:
    """Return the length of the longest name."""
    return max(map(len, names))


def slanted(labels: Sequence[str], inches: float, towards: str) -> dict[str, Any]:
    """Return the text style of labels along an axis: slanted if one is too long for its space."""
    level: dict[str, Any] = {"parse_math": False}
    if 0.085 * longest(labels) <= inches:
        return level
    return level | {"rotation": 35, "rotation_mode": "anchor", "ha": towards}


def style_axes(axes: Axes, xlabel: str = "", ylabel: str = "", title: str = "") -> None:
    """Set labels and a light grid, and remove the frame."""
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(axis="y", color=MISSING, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        axes.set_title(title, fontsize=10, parse_math=False)


def legend_columns(inches: float, names: Sequence[str]) -> int:
    """Return the number of columns of a legend of this width."""
    return min(len(names), max(1, int(inches * 14 / (longest(names) + 6))))


def legend(figure: Figure, axes: Axes) -> None:
    """Put the legend of the axes below the figure."""
    handles, names = axes.get_legend_handles_labels()
    if names:
        columns = legend_columns(figure.get_figwidth(), names)
        below: Any = {"loc": "outside lower center", "frameon": False, "fontsize": 8}
        figure.legend(handles, names, ncols=columns, **below)


def draw_bars(
    labels: Sequence[str],
    series: Mapping[str, Sequence[Mean | None]],
    path: Path,
    ylabel: str = "test accuracy, %",
    title: str = "",
    marks: Mapping[str, Sequence[str]] | None = None,
) -> list[Path]:
    """Draw a group of bars per label and a bar per series, with error bars; None is drawn as a dash.

    `marks` are texts to write above the bars of a series, such as "†" for a run that diverged.
    """
    across = max(4.0, 1.2 + 0.23 * (len(series) + 1) * len(labels))
    figure = Figure(figsize=(across, 3.4), layout="constrained")
    axes = figure.subplots()
    width = 0.84 / len(series)
    for index, (name, means) in enumerate(series.items()):
        at = [place - 0.42 + (index + 0.5) * width for place in range(len(means))]
        heights = numbers([mean and mean[0] for mean in means])
        halves = numbers([mean and mean[1] for mean in means])
        axes.bar(
            at,
            heights,
            width,
            yerr=halves,
            error_kw={"elinewidth": 0.9, "capsize": min(3.0, 12 * width)},
            label=name,
            color=COLOURS[index % len(COLOURS)],
            hatch=HATCHES[index // len(COLOURS) % len(HATCHES)],
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
    style_axes(axes, "", ylabel, title)
    legend(figure, axes)
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
    """Draw a curve per series, with gaps for None; `band` is half the width of the intervals.

    `log` makes the vertical axis logarithmic.
    """
    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    axes = figure.subplots()
    few = len(x) <= FEW_POINTS
    for index, (name, values) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        heights = numbers(values)
        axes.plot(
            x,
            heights,
            label=name,
            color=colour,
            linestyle=LINES[(index if not few else index // len(COLOURS)) % len(LINES)],
            marker=MARKERS[index % len(MARKERS)] if few else None,
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
    style_axes(axes, xlabel, ylabel, title)
    legend(figure, axes)
    return save(figure, path)


def draw_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[Mean | None]],
    path: Path,
    title: str = "",
    marks: Sequence[Sequence[str]] | None = None,
) -> list[Path]:
    """Draw a cell per row and column: its colour is the mean, from 0 to 100, its text mean and interval.

    None is grey. `marks` are texts to write after the means, such as "†" for a run that diverged.
    """
    figure = Figure(figsize=(1.6 + 0.085 * longest(rows) + 0.72 * len(columns), 1.3 + 0.36 * len(rows)))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    heat = [numbers([mean and mean[0] for mean in line]) for line in values]
    image = axes.imshow(heat, vmin=0, vmax=100, cmap=COLOUR_MAP, aspect="auto", interpolation="nearest")
    axes.set_facecolor(MISSING)
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
    """Write a text slightly above a point."""
    axes.annotate(text, (x, y), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=7)
