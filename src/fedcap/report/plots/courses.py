"""Figures of one run: accuracy, scores, mixing weights, what the attack came to, clients, cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedcap.report.saving import save
from fedcap.report.story.series import AttackCurves, Client, Costs, Course, ScoreCurves, Spread
from fedcap.report.style import ABSENT, ATTACKER, COLOURS, HATCHES, HONEST, LINES, MAP, bare, legend, numbers

WIDE, HIGH = 5.2, 3.4
"""Inches of a figure, or of a part of one."""
FAR = 20
"""If the highest score is so many times the median one, the axis is logarithmic."""
MOST_NAMES = 40
"""How many clients' names fit along an axis."""


def accuracy(course: Course, path: Path) -> list[Path]:
    """Draw the mean over all test samples, between the worst and the best client, for both readings."""
    curves = course.accuracy
    assert curves is not None
    figure = Figure(figsize=(WIDE, HIGH), layout="constrained")
    axes = figure.subplots()
    _spread(axes, curves.rounds, curves.personal, "personal", 0)
    if curves.shared is not None:
        _spread(axes, curves.rounds, curves.shared, "shared", 1)
    if course.local is not None:
        axes.plot(
            course.local.rounds, numbers(course.local.mean), color="black", linestyle=":", label="alone"
        )
    axes.set_ylim(0, 100)
    _over_rounds(axes, "test accuracy, %")
    legend(figure, axes)
    return save(figure, path)


def _spread(axes: Axes, rounds: Sequence[int], spread: Spread, name: str, turn: int) -> None:
    colour, line = COLOURS[turn], LINES[turn]
    mean, low, high = map(numbers, (spread.mean, spread.worst, spread.best))
    marker = "o" if len(rounds) == 1 else None
    axes.plot(rounds, mean, color=colour, linestyle=line, linewidth=1.8, marker=marker, label=f"{name}, mean")
    axes.fill_between(
        rounds, low, high, color=colour, alpha=0.15, linewidth=0, label=f"{name}, worst to best client"
    )


def scores(course: Course, path: Path) -> list[Path]:
    """Draw each client's scores to the round in which it was removed, a part for each detector."""
    count = len(course.scores)
    figure = Figure(figsize=(max(WIDE, 3.6 * count), HIGH), layout="constrained")
    for axes, curves in zip(figure.subplots(1, count, squeeze=False).flat, course.scores, strict=True):
        _scores(axes, course.clients, curves)
    legend(figure, figure.axes[0])
    return save(figure, path)


def _scores(axes: Axes, clients: Sequence[Client], curves: ScoreCurves) -> None:
    values = np.asarray(curves.values, dtype=float)

    def once(label: str) -> str | None:
        return None if label in axes.get_legend_handles_labels()[1] else label

    for client, line in zip(clients, values, strict=True):
        there = np.flatnonzero(np.isfinite(line))
        if not there.size:
            continue
        attacks = client.role == "attacker"
        colour = ATTACKER if attacks else HONEST
        who = {"attacker": "attackers", "honest": "honest clients", "site": "sites"}[client.role]
        rounds = np.asarray(curves.rounds)
        style = "--" if attacks else "-"
        axes.plot(rounds, line, color=colour, linestyle=style, linewidth=0.9, alpha=0.75, label=once(who))
        if client.removed is not None:
            last = there[-1]
            axes.plot(
                rounds[last], line[last], "x", color=colour, markersize=6, label=once(f"{who}, removed")
            )
    limits = numbers(curves.limits)
    axes.plot(curves.rounds, limits, color="black", linestyle=":", linewidth=1.4, label=once("limit"))
    known = values[np.isfinite(values)]
    if known.size and known.min() > 0 and known.max() > FAR * np.median(known):
        axes.set_yscale("log")
    _over_rounds(axes, curves.name)


def mixing(course: Course, path: Path, rounds: Sequence[int] | None = None) -> list[Path]:
    """Draw the mixing weights of a few rounds: those chosen, or the first, the middle one and the last."""
    drawn = course.mixing
    assert drawn is not None
    every = list(drawn.rounds)
    chosen = rounds or list(dict.fromkeys((every[0], every[len(every) // 2], every[-1])))
    size = min(4.5, max(2.6, 0.11 * len(drawn.rows)))
    figure = Figure(figsize=(size * len(chosen) + 1.0, size + 0.5), layout="constrained")
    parts = figure.subplots(1, len(chosen), squeeze=False, sharey=True).flat
    maps = [np.asarray(drawn.weights[every.index(number)], dtype=float) for number in chosen]
    top = max((float(np.nanmax(one)) for one in maps if np.isfinite(one).any()), default=1.0)
    for number, weights, axes in zip(chosen, maps, parts, strict=True):
        image = axes.imshow(weights, vmin=0, vmax=top or 1.0, cmap=MAP, interpolation="nearest")
        axes.set_facecolor(ABSENT)
        axes.set_title(f"round {number}", fontsize=10)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        _name_rows(axes, course.clients, drawn.rows)
    figure.axes[0].set_ylabel("whose model")
    hostile = any(course.clients[at].role == "attacker" for row in drawn.rows for at in row)
    absent = any(np.isnan(one).any() for one in maps)
    marks = "; ".join(["▲ attackers"] * hostile + ["grey: not in that round"] * absent)
    figure.supxlabel(f"is mixed from whose{f' ({marks})' if marks else ''}", fontsize=10)
    figure.colorbar(image, ax=figure.axes, shrink=0.8, label="weight").outline.set_visible(False)
    return save(figure, path)


def _name_rows(axes: Axes, clients: Sequence[Client], rows: Sequence[Sequence[int]]) -> None:
    """Write the clients' names along both axes, if they are few and each has a row of its own."""
    if len(rows) > MOST_NAMES or any(len(row) > 1 for row in rows):
        axes.set_xticks([])
        axes.set_yticks([])
        return
    names = [_named(clients[row[0]]) for row in rows]
    size = 7 if len(rows) <= 24 else 5
    axes.set_xticks(range(len(names)), names, fontsize=size, rotation=90, parse_math=False)
    axes.set_yticks(range(len(names)), names, fontsize=size, parse_math=False)


def _named(client: Client) -> str:
    return f"{client.name[:20]} ▲" if client.role == "attacker" else client.name[:20]


def attack(curves: AttackCurves, path: Path) -> list[Path]:
    """Draw how long the malicious updates are beside the honest mean, and where they point."""
    figure = Figure(figsize=(1.5 * WIDE, HIGH), layout="constrained")
    lengths, cosines = figure.subplots(1, 2)
    for label, values, colour, style in (
        ("attackers, mean", curves.length, ATTACKER, "^--"),
        ("mean of the honest", curves.benign_length, HONEST, "o-"),
    ):
        lengths.plot(curves.rounds, numbers(values), style, color=colour, markersize=3, label=label)
    if all(value is None or value > 0 for value in (*curves.length, *curves.benign_length)):
        lengths.set_yscale("log")
    _over_rounds(lengths, "length of the update")
    cosines.plot(curves.rounds, numbers(curves.cosine), "^--", color=ATTACKER, markersize=3)
    cosines.set_ylim(-1.05, 1.05)
    _over_rounds(cosines, "cosine to the mean of the honest")
    legend(figure, lengths)
    return save(figure, path)


def clients(course: Course, path: Path) -> list[Path]:
    """Draw every client's accuracy in the last round that was evaluated, the worst first."""
    tested = [client for client in course.clients if client.personal is not None]
    tested.sort(key=lambda client: max(client.personal or 0.0, client.shared or 0.0))
    figure = Figure(figsize=(max(WIDE, min(12.0, 0.2 * len(tested) + 1)), HIGH), layout="constrained")
    axes = figure.subplots()
    at = range(len(tested))
    size = 5 if len(tested) <= MOST_NAMES else 2
    for turn, (reading, marker) in enumerate({"personal": "o", "shared": "s", "local": "_"}.items()):
        values = [getattr(client, reading) for client in tested]
        if any(value is not None for value in values):
            colour = "black" if reading == "local" else COLOURS[turn]
            label = "alone" if reading == "local" else reading
            beside = [place + 0.2 * (turn - 0.5) for place in at]
            axes.plot(beside, numbers(values), marker, color=colour, markersize=size, label=label)
    for place, client in enumerate(tested):
        if client.removed is not None:
            axes.axvline(place, color=ATTACKER, linestyle=":", linewidth=1)
            axes.annotate("removed", (place, 2), rotation=90, ha="right", fontsize=7, color=ATTACKER)
    axes.set_ylim(0, 102)
    if len(tested) <= MOST_NAMES:
        names = [client.name[:20] for client in tested]
        axes.set_xticks(
            at, names, fontsize=7, rotation=90 if max(map(len, names)) > 3 else 0, parse_math=False
        )
    else:
        axes.set_xticks([])
    bare(axes, "client, the worst first", "test accuracy, %")
    legend(figure, axes)
    return save(figure, path)


def cost(costs: Costs, path: Path) -> list[Path]:
    """Draw the seconds of each round by part, one upon the other, and the bytes that were sent."""
    figure = Figure(figsize=(1.5 * WIDE, HIGH), layout="constrained")
    seconds, sent = figure.subplots(1, 2)
    parts = [part.name for part in fields(costs) if part.name not in ("rounds", "total", "bytes")]
    under = np.zeros(len(costs.rounds))
    for turn, part in enumerate(parts):
        values = np.nan_to_num(numbers(getattr(costs, part)))
        if values.any():
            hatch = HATCHES[turn % len(HATCHES)]
            seconds.bar(
                costs.rounds,
                values,
                1.0,
                under,
                label=part,
                color=COLOURS[turn],
                hatch=hatch,
                edgecolor="white",
                linewidth=0,
            )
            under = under + values
    _over_rounds(seconds, "seconds")
    sent.bar(costs.rounds, np.nan_to_num(numbers(costs.bytes)) / 1e6, 1.0, color=COLOURS[-1])
    _over_rounds(sent, "megabytes sent")
    legend(figure, seconds)
    return save(figure, path)


def _over_rounds(axes: Axes, ylabel: str) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    low, high = axes.get_xlim()
    if high - low < 1:  # one round
        axes.set_xlim(low - 1, high + 1)
    bare(axes, "round", ylabel)
