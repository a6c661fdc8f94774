"""The paper's figures, drawn from finished runs: bars, curves over the rounds, curves over an option."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from fedcap.report.charts import draw_bars, draw_curves
from fedcap.report.panel import attack_title
from fedcap.report.statistics import half_width
from fedcap.runs import Outcome
from reproduction.cells import Item
from reproduction.compare import Compared, by_heading

Points = Mapping[int, float | None]
"""Round → value."""
Pictures = dict[str, Callable[[Path], list[Path]]]
"""A picture's name → the function that draws it, given a path with or without an ending."""


def pictures(item: Item, compared: Sequence[Compared]) -> Pictures:
    """Return what can be drawn of an item; nothing if it has no picture, or no run has finished."""
    found: Pictures = {}
    if item.drawn is None:
        return found
    for heading, inside in by_heading(compared).items():
        if item.drawn != "norms" and not _has_something_to_compare(item, inside):
            continue
        name = f"{item.name}-{heading.replace(', ', '-')}"
        title = f"{item.title.partition(':')[0]}, {heading}"
        if item.drawn == "bars":
            found[name] = partial(_draw_bars, title, inside)
        elif item.drawn == "sweep":
            found[name] = partial(_draw_sweep, title, item.varied, inside)
        else:
            draw = {"curves": _draw_accuracies, "norms": _draw_norms}[item.drawn]
            for row, at in _by_row(inside).items():
                found[f"{name}-{row}"] = partial(draw, f"{title}, {row}", at)
    return found


def _draw_bars(title: str, inside: Sequence[Compared], path: Path) -> list[Path]:
    rows = list(dict.fromkeys(each.cell.row for each in inside if each.runs))
    series: dict[str, list[tuple[float, float | None] | None]] = {}
    marks: dict[str, list[str]] = {}
    for column, at in _by_column(inside).items():
        series[column] = [None if (mean := at[row].mean) is None else (mean, at[row].half) for row in rows]
        marks[column] = ["†" if at[row].diverged else "" for row in rows]
    return draw_bars([attack_title(row) for row in rows], series, path, title=title, marks=marks)


def _draw_sweep(title: str, varied: str, inside: Sequence[Compared], path: Path) -> list[Path]:
    rows = list(dict.fromkeys(each.cell.row for each in inside))
    columns = {attack_title(name): at for name, at in _by_column(inside).items()}
    series = {name: [at[row].mean for row in rows] for name, at in columns.items()}
    band = {name: [at[row].half for row in rows] for name, at in columns.items()}
    return draw_curves([float(row) for row in rows], series, path, varied, band=band, title=title)


def _draw_accuracies(title: str, at: Mapping[str, Compared], path: Path) -> list[Path]:
    """Draw the accuracy of each column, in the better reading, over the rounds."""
    series = {column: [_accuracies(run) for run in each.runs.values()] for column, each in at.items()}
    return _draw_over_rounds(title, series, path)


def _draw_norms(title: str, at: Mapping[str, Compared], path: Path) -> list[Path]:
    """Draw the lengths of honest and of malicious clients' updates over the rounds."""
    runs = [run.norms for each in at.values() for run in each.runs.values() if run.norms is not None]
    series = {
        "honest clients": [dict(zip(norms.rounds, norms.benign, strict=True)) for norms in runs],
        "malicious clients": [dict(zip(norms.rounds, norms.malicious, strict=True)) for norms in runs],
    }
    return _draw_over_rounds(title, series, path, "median length of updates", log=True)


def _draw_over_rounds(
    title: str,
    series: Mapping[str, Sequence[Points]],
    path: Path,
    ylabel: str = "test accuracy, %",
    log: bool = False,
) -> list[Path]:
    """Draw the mean over seeds of each series, round by round."""
    rounds = sorted({number for runs in series.values() for run in runs for number in run})
    means: dict[str, list[float | None]] = {}
    halves: dict[str, list[float | None]] = {}
    for name, runs in series.items():
        at = [[value for run in runs if (value := run.get(number)) is not None] for number in rounds]
        means[name] = [fmean(values) if values else None for values in at]
        halves[name] = [half_width(values) for values in at]
    return draw_curves(rounds, means, path, "round", ylabel, band=halves, title=title, log=log)


def _accuracies(run: Outcome) -> Points:
    """Return the better reading in each round that was evaluated."""
    curve = run.curve
    pairs = zip(curve.rounds, curve.shared, curve.personal, strict=True)
    return {number: max(shared or 0.0, personal) for number, shared, personal in pairs}


def _has_something_to_compare(item: Item, inside: Sequence[Compared]) -> bool:
    """Whether a group has more than one bar or curve, or a sweep more than one point."""
    groups = _by_column(inside) if item.drawn == "sweep" else _by_row(inside)
    return any(sum(bool(each.runs) for each in at.values()) > 1 for at in groups.values())


def _by_column(inside: Sequence[Compared]) -> dict[str, dict[str, Compared]]:
    """Return the cells by column and row; columns without a finished run are left out."""
    found: dict[str, dict[str, Compared]] = {}
    for each in inside:
        found.setdefault(each.cell.column, {})[each.cell.row] = each
    return {column: at for column, at in found.items() if any(each.runs for each in at.values())}


def _by_row(inside: Sequence[Compared]) -> dict[str, dict[str, Compared]]:
    """Return the cells by row and column, where a run has finished."""
    found: dict[str, dict[str, Compared]] = {}
    for each in inside:
        if each.runs:
            found.setdefault(each.cell.row, {})[each.cell.column] = each
    return found
