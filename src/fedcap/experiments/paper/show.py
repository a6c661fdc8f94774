"""A table or a figure of the paper beside ours: each entry's mean over seeds, the paper's figure, the gap."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from fedcap.experiments.paper.columns import ONE_SETTING
from fedcap.experiments.paper.entry import Entry, Item
from fedcap.experiments.paper.recorded import Recorded
from fedcap.experiments.paper.setups import SET_UP_OF
from fedcap.report.statistics import half_width
from fedcap.report.tables import DIVERGED_NOTE, Table
from fedcap.runs import Outcome

HOW_TO_READ = (
    "Ours is above, the mean over seeds ± half its 95 % interval; below is the paper's, and the difference."
)
ONE_SEED = "One seed, so there is no interval."


@dataclass(frozen=True)
class Compared:
    """An entry, and the runs of it that have finished."""

    entry: Entry
    runs: Mapping[int, Outcome]
    """By seed, those that have the figure."""

    @cached_property
    def values(self) -> list[float]:
        """The figure of each seed."""
        return [float(self.entry.measure.of(run) or 0.0) for run in self.runs.values()]

    @property
    def mean(self) -> float | None:
        """The mean over the seeds, none if no run has finished."""
        return fmean(self.values) if self.values else None

    @property
    def half(self) -> float | None:
        """Half the width of the mean's 95 % interval; one seed has none."""
        return half_width(self.values)

    @property
    def judged(self) -> bool:
        """Whether the paper has a figure for these very data."""
        return self.entry.published is not None and self.entry.dataset not in SET_UP_OF

    @property
    def difference(self) -> float | None:
        """Our mean less the paper's figure, which has no spread: the interval is that of our mean."""
        if self.mean is None or self.entry.published is None or not self.judged:
            return None
        return self.mean - self.entry.published

    @property
    def agrees(self) -> bool | None:
        """Whether the difference is small enough; none if there is nothing to judge by."""
        within = self.entry.measure.tolerance(self.entry.dataset)
        if self.difference is None or within is None:
            return None
        return round(abs(self.difference), 6) <= within

    @property
    def diverged(self) -> list[int]:
        """The seeds whose runs diverged."""
        return [seed for seed, run in self.runs.items() if run.diverged]

    def text(self, seeds: int, line_break: str = "\n") -> str:
        """Return what stands in the table, given how many seeds the other cells have."""
        measure = self.entry.measure
        ours = measure.text(self.mean)
        if self.half is not None:
            ours += f" ± {self.half:.{max(1, measure.digits)}f}"
        ours += " †" * bool(self.diverged) + f" ({len(self.runs)})" * (0 < len(self.runs) < seeds)
        if self.entry.published is None:
            return ours
        theirs = measure.text(self.entry.published)
        if self.difference is not None:
            theirs += f" {self.difference:+.{measure.digits}f}"
        return f"{ours}{line_break}{theirs}"

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        entry, half, gap = self.entry, self.half, self.difference
        around = [
            (value - half, value + half) if half is not None and value is not None else None
            for value in (self.mean, gap)
        ]
        return {
            "panel": entry.heading,
            "dataset": entry.dataset,
            "row": entry.row,
            "column": entry.column,
            "attack": entry.attack,
            "measure": entry.read,
            "ours": self.mean,
            "interval": around[0],
            "seeds": list(self.runs),
            "values": self.values,
            "diverged": self.diverged,
            "paper": entry.published,
            "difference": gap,
            "difference_interval": around[1],
            "agrees": self.agrees,
        }


def compare(
    item: Item, recorded: Recorded, rounds: int | None = None, seeds: Collection[int] | None = None
) -> list[Compared]:
    """Return each entry of an item with its finished runs: of these seeds, or of all."""
    found = []
    for entry in item.entries:
        runs = {
            seed: run
            for seed, run in recorded.of(entry, rounds).items()
            if (seeds is None or seed in seeds) and entry.measure.of(run) is not None
        }
        found.append(Compared(entry, runs))
    return found


def panels(compared: Sequence[Compared]) -> dict[str, list[Compared]]:
    """Return what is compared by the headings of the tables, those with a finished run alone."""
    found: dict[str, list[Compared]] = {}
    for each in compared:
        found.setdefault(each.entry.heading, []).append(each)
    return {heading: inside for heading, inside in found.items() if any(each.runs for each in inside)}


def table(
    heading: str, inside: Sequence[Compared], line_break: str = "\n", brief: bool = False, most: int = 99
) -> Table:
    """Return one table, rows and columns as in the paper; columns without a finished run are left out.

    If there are more than `most` columns, they become the rows. If `brief`, the notes do not say how to read
    the table.
    """
    finished = {each.entry.column for each in inside if each.runs}
    columns = [name for name in dict.fromkeys(each.entry.column for each in inside) if name in finished]
    rows = list(dict.fromkeys(each.entry.row for each in inside if each.entry.column in finished))
    at = {(each.entry.row, each.entry.column): each for each in inside}
    seeds = max(len(each.runs) for each in inside)
    texts = [
        [at[row, column].text(seeds, line_break) if (row, column) in at else "" for column in columns]
        for row in rows
    ]
    names = ["no attack" if row == "none" else row for row in rows]
    if len(columns) > most:
        names, columns, texts = columns, names, [list(line) for line in zip(*texts, strict=True)]
    lines = [[name, *line] for name, line in zip(names, texts, strict=True)]
    return Table(["", *columns], lines, heading, _notes(inside, seeds, brief))


def _notes(inside: Sequence[Compared], seeds: int, brief: bool) -> list[str]:
    printed = any(each.entry.published is not None for each in inside)
    said = [HOW_TO_READ] * (printed and not brief)
    if printed:
        replaced = {SET_UP_OF[each.entry.dataset] for each in inside if each.entry.dataset in SET_UP_OF}
        said += [f"The paper's figures are for {name}: no difference is taken." for name in sorted(replaced)]
    if seeds == 1:
        said.append(ONE_SEED)
    else:
        fewer = any(0 < len(each.runs) < seeds for each in inside)
        said.append(f"Over {seeds} seeds{'; a cell of fewer says how many in brackets' * fewer}.")
    return said + [DIVERGED_NOTE] * (any(each.diverged for each in inside) and not brief)


@dataclass(frozen=True)
class Row:
    """One row of a table in which FedCAP stands beside others: who is first."""

    heading: str
    row: str
    fedcap: Compared
    rival: Compared
    """The best of the others."""

    @property
    def first(self) -> bool:
        """Whether FedCAP is first, or as good as the best of the others."""
        assert self.fedcap.mean is not None
        assert self.rival.mean is not None
        return round(self.fedcap.mean, 2) >= round(self.rival.mean, 2)


def contests(compared: Sequence[Compared], column: str = "FedCAP") -> list[Row]:
    """Return the rows in which FedCAP's column and at least one of the others have finished."""
    found = []
    for heading, inside in panels(compared).items():
        accuracies = [each for each in inside if each.runs and each.entry.measure.is_accuracy]
        for row in dict.fromkeys(each.entry.row for each in accuracies):
            here = {each.entry.column: each for each in accuracies if each.entry.row == row}
            ours = here.get(column)
            others = [each for name, each in here.items() if name not in ("FedCAP", ONE_SETTING)]
            if ours is not None and others:
                found.append(Row(heading, row, ours, max(others, key=lambda each: each.mean or 0.0)))
    return found
