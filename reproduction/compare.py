"""Our figures and the paper's: means over seeds, differences, agreement, tables, and reasons."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from statistics import fmean
from typing import Any

from fedcap.report.panel import attack_title
from fedcap.report.statistics import half_width
from fedcap.report.tables import DIVERGED_NOTE, Table
from fedcap.runs import Outcome
from reproduction.cells import Item, PaperCell
from reproduction.published import NAN_SCORES
from reproduction.recorded import Recorded
from reproduction.setups import ONE_SETTING, SET_UP_OF, TEST_SAMPLES
from reproduction.templates import section

HOW_TO_READ = (
    "First our mean over seeds, ± half of its 95 % interval from three seeds on; then the paper's figure,"
    " and the difference."
)


@dataclass(frozen=True)
class Compared:
    """A cell of the paper, and its finished runs."""

    cell: PaperCell
    runs: Mapping[int, Outcome]
    """By seed, those that have the figure."""

    @cached_property
    def values(self) -> list[float]:
        """The figure of each seed."""
        return [float(self.cell.measure.of(run) or 0.0) for run in self.runs.values()]

    @property
    def mean(self) -> float | None:
        """The mean over the seeds; none if no run has finished."""
        return fmean(self.values) if self.values else None

    @property
    def half(self) -> float | None:
        """Half the width of the mean's 95 % interval; none with fewer than three seeds."""
        return half_width(self.values)

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's figure; none if the paper has no figure for the same data."""
        if self.mean is None or self.cell.published is None or self.cell.dataset in SET_UP_OF:
            return None
        return self.mean - self.cell.published

    @property
    def agrees(self) -> bool | None:
        """Whether the difference is within the tolerance; none if it is not judged."""
        within = self.cell.measure.tolerance(self.cell.dataset)
        if self.difference is None or within is None:
            return None
        return round(abs(self.difference), 6) <= within

    @property
    def diverged(self) -> list[int]:
        """The seeds whose runs diverged."""
        return [seed for seed, run in self.runs.items() if run.diverged]

    def text(self, seeds: int, line_break: str = "\n") -> str:
        """Return the text of the cell in a table whose other cells have a number of seeds."""
        measure = self.cell.measure
        ours = measure.text(self.mean)
        if self.half is not None:
            ours += f" ± {self.half:.{max(1, measure.digits)}f}"
        ours += " †" * bool(self.diverged) + f" ({len(self.runs)})" * (0 < len(self.runs) < seeds)
        if self.cell.published is None:
            return ours
        theirs = measure.text(self.cell.published)
        if self.difference is not None:
            theirs += f" {self.difference:+.{measure.digits}f}"
        return f"{ours}{line_break}{theirs}"

    def facts(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "panel": self.cell.heading,
            "dataset": self.cell.dataset,
            "row": self.cell.row,
            "column": self.cell.column,
            "attack": self.cell.attack,
            "measure": self.cell.read,
            "ours": self.mean,
            "half_width": self.half,
            "seeds": list(self.runs),
            "values": self.values,
            "diverged": self.diverged,
            "paper": self.cell.published,
            "difference": self.difference,
            "agrees": self.agrees,
        }


def compare(
    item: Item, recorded: Recorded, rounds: int | None = None, seeds: Collection[int] | None = None
) -> list[Compared]:
    """Return each cell of an item with its finished runs: of these seeds, or of all."""
    found = []
    for cell in item.cells:
        runs = {
            seed: run
            for seed, run in recorded.of(cell, rounds).items()
            if (seeds is None or seed in seeds) and cell.measure.of(run) is not None
        }
        found.append(Compared(cell, runs))
    return found


def by_heading(compared: Sequence[Compared]) -> dict[str, list[Compared]]:
    """Return the cells by the headings of their tables; tables without a finished run are left out."""
    found: dict[str, list[Compared]] = {}
    for each in compared:
        found.setdefault(each.cell.heading, []).append(each)
    return {heading: inside for heading, inside in found.items() if any(each.runs for each in inside)}


def table(
    heading: str, inside: Sequence[Compared], line_break: str = "\n", brief: bool = False, most: int = 99
) -> Table:
    """Return one table, rows and columns as in the paper; columns without a finished run are left out.

    With more than `most` columns, the columns become the rows. If `brief`, the notes do not say how to read
    the table.
    """
    finished = {each.cell.column for each in inside if each.runs}
    columns = [name for name in dict.fromkeys(each.cell.column for each in inside) if name in finished]
    rows = list(dict.fromkeys(each.cell.row for each in inside if each.cell.column in finished))
    at = {(each.cell.row, each.cell.column): each for each in inside}
    seeds = max(len(each.runs) for each in inside)
    texts = [
        [at[row, column].text(seeds, line_break) if (row, column) in at else "" for column in columns]
        for row in rows
    ]
    names = [attack_title(row) for row in rows]
    if len(columns) > most:
        names, columns, texts = columns, names, [list(line) for line in zip(*texts, strict=True)]
    lines = [[name, *line] for name, line in zip(names, texts, strict=True)]
    return Table(["", *columns], lines, heading, _notes(inside, seeds, brief))


def standard_error(accuracy: float, dataset: str) -> float:
    """Return the standard error, in points, of an accuracy on a data set's test samples."""
    share = accuracy / 100
    return 100 * sqrt(share * (1 - share) / TEST_SAMPLES[dataset])


def _error_note(inside: Sequence[Compared]) -> list[str]:
    """Return the standard error of the highest accuracy of a table, if the test samples are known."""
    accuracies = [each for each in inside if each.cell.measure.is_accuracy and each.mean is not None]
    best = max(accuracies, key=lambda each: each.mean or 0.0, default=None)
    if best is None or best.mean is None or best.cell.dataset not in TEST_SAMPLES:
        return []
    if any("malicious" in each.cell.others for each in inside):  # other clients are honest
        return []
    error = standard_error(best.mean, best.cell.dataset)
    samples = TEST_SAMPLES[best.cell.dataset]
    return [
        f"{samples} test samples: {best.mean:.1f} % of one seed has a standard error of {error:.1f} points."
    ]


def _notes(inside: Sequence[Compared], seeds: int, brief: bool) -> list[str]:
    printed = any(each.cell.published is not None for each in inside)
    notes = [HOW_TO_READ] * (printed and not brief)
    if printed:
        replaced = {SET_UP_OF[each.cell.dataset] for each in inside if each.cell.dataset in SET_UP_OF}
        notes += [f"The paper's figures are for {name}: no difference is taken." for name in sorted(replaced)]
    fewer = any(0 < len(each.runs) < seeds for each in inside)
    notes.append("One seed." if seeds == 1 else f"{seeds} seeds{'; fewer are in brackets' * fewer}.")
    notes += _error_note(inside)
    return notes + [DIVERGED_NOTE] * (any(each.diverged for each in inside) and not brief)


# --- Ranks


@dataclass(frozen=True)
class Contest:
    """One row of a table with FedCAP and other methods."""

    row: str
    fedcap: Compared
    rival: Compared
    """The best of the other methods."""

    @property
    def is_won(self) -> bool:
        """Whether FedCAP is at least as good as the best of the others."""
        return round(self.fedcap.mean or 0.0, 2) >= round(self.rival.mean or 0.0, 2)


def contests(compared: Sequence[Compared], column: str = "FedCAP") -> list[Contest]:
    """Return the rows in which a column of FedCAP and at least one other method have finished."""
    found = []
    for inside in by_heading(compared).values():
        accuracies = [each for each in inside if each.runs and each.cell.measure.is_accuracy]
        for row in dict.fromkeys(each.cell.row for each in accuracies):
            here = {each.cell.column: each for each in accuracies if each.cell.row == row}
            ours = here.get(column)
            others = [each for name, each in here.items() if name not in ("FedCAP", ONE_SETTING)]
            if ours is not None and others:
                found.append(Contest(row, ours, max(others, key=lambda each: each.mean or 0.0)))
    return found


# --- Reasons for differences; their texts are in templates/reasons.md

NOT_EXPLAINED, PARTLY_EXPLAINED = "Not explained", "Partly explained"
"""The start of each text that gives no reason, and of each that gives a part of it."""


def _is_higher(compared: Compared) -> bool:
    return (compared.difference or 0) > 0


def _is_fedcap(compared: Compared) -> bool:
    return compared.cell.column.startswith("FedCAP")


def _is_nan_score(compared: Compared) -> bool:
    """Whether the published figure is what a model of NaNs scores."""
    return compared.cell.published in NAN_SCORES.values()


def _never_too_long(compared: Compared) -> bool:
    """Whether attackers were missed, and the median length of their updates was never above T_norm."""
    return compared.cell.read in ("dacc", "fnr") and all(
        run.fnr == 100
        and run.norms is not None
        and max(norm or 0.0 for norm in run.norms.malicious) <= run.settings["method"]["t_norm"]
        for run in compared.runs.values()
    )


REASONS: Mapping[str, Callable[[Compared], bool]] = {
    "diverged": lambda c: bool(c.diverged),
    "fltrust": lambda c: c.cell.column.startswith("FLTrust") and _is_higher(c),
    "nan-score": lambda c: _is_nan_score(c) and _is_higher(c),
    "bucketing": lambda c: c.cell.column.startswith("Bucketing"),
    "fedfomo": lambda c: c.cell.column.startswith("FedFomo"),
    "impossible": lambda c: (
        (c.cell.dataset, c.cell.attack, c.cell.read) == ("emnist", "sign-flipping", "fnr")
    ),
    "never-too-long": lambda c: _is_fedcap(c) and _never_too_long(c),
    "wisdm": lambda c: (
        c.cell.dataset == "wisdm" and _is_higher(c) and c.cell.measure.is_accuracy and not _is_nan_score(c)
    ),
    "exact-search": lambda c: c.cell.attack in ("min-max", "min-sum") and not _is_higher(c),
}
"""The key of each reason's text, and the cells that it explains; the first that holds is given."""


def reason(compared: Compared, **fields: str) -> str:
    """Return why a figure differs; `fields` are figures in the texts."""
    key = next((key for key, explains in REASONS.items() if explains(compared)), None)
    return section("reasons", key, **fields) if key else f"{NOT_EXPLAINED}."
