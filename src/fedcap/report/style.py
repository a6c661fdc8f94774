"""The one style of all pictures.

Colours are those of Okabe and Ito, which colour-blind people tell apart. What differs in colour differs in
its line, marker, hatch or place besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000", "#999999")
HONEST, ATTACKER = COLOURS[0], COLOURS[3]
HATCHES = ("", "//", "..", "xx")
LINES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX*"
MAP = "cividis"
ABSENT = "#dddddd"
"""The colour of a field of a map that has no value."""
FEW_POINTS = 12
"""Curves of so many points have markers and error bars; those of more have bands."""


def numbers(values: Sequence[float | None]) -> list[float]:
    """Return values with NaN for what is none."""
    return [float("nan") if value is None else float(value) for value in values]


def longest(names: Sequence[str]) -> int:
    """Return how many letters the longest name has."""
    return max(map(len, names))


def slanted(labels: Sequence[str], inches: float, towards: str) -> dict[str, Any]:
    """Return how labels are set along an axis: slanted if one is too long for its place."""
    level: dict[str, Any] = {"parse_math": False}
    if 0.085 * longest(labels) <= inches:
        return level
    return level | {"rotation": 35, "rotation_mode": "anchor", "ha": towards}


def bare(axes: Axes, xlabel: str = "", ylabel: str = "", title: str = "") -> None:
    """Put labels and a light grid, and no frame."""
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(axis="y", color=ABSENT, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        axes.set_title(title, fontsize=10, parse_math=False)


def legend_columns(inches: float, names: Sequence[str]) -> int:
    """Return how many names stand side by side in a legend so wide."""
    return min(len(names), max(1, int(inches * 14 / (longest(names) + 6))))


def legend(figure: Figure, axes: Axes) -> None:
    """Put a legend of what is in the axes below the figure."""
    handles, names = axes.get_legend_handles_labels()
    if names:
        columns = legend_columns(figure.get_figwidth(), names)
        below: Any = {"loc": "outside lower center", "frameon": False, "fontsize": 8}
        figure.legend(handles, names, ncols=columns, **below)


def finish(figure: Figure, axes: Axes, xlabel: str, ylabel: str, title: str = "") -> None:
    """Put labels, a light grid and a legend below."""
    bare(axes, xlabel, ylabel, title)
    legend(figure, axes)
