"""The report on a grid: tables of methods × attacks, and a report on each of its runs.

The tables are those of `panel`: the folder of a grid stores the place of each run on the axes of the grid.
For folders of older versions, which do not, the places are derived from the settings that vary.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fedcap.errors import InputError, plural
from fedcap.report.checks import grid_checks, grid_figures
from fedcap.report.model import Fact, GridCell, GridData, GridTable, Report, RunData
from fedcap.report.pack import MAX_NUMBERS, SizeLimit
from fedcap.report.panel import (
    NO_ATTACK,
    Panel,
    attack_title,
    column_label,
    derive_places,
    make_panels,
    panel_title,
    place_text,
    row_label,
)
from fedcap.report.run import LOCAL, RunFiles, run_report
from fedcap.runs import (
    CONFIG,
    RESULT,
    Outcome,
    Place,
    Provenance,
    RunDirectory,
    Settings,
    read,
)
from fedcap.runs.outcome import CELLS, FAILED, OUTCOME, read_failure, read_outcome, read_planned

MAX_NUMBERS_IN_ALL = 1_000_000
"""How many numbers the arrays of one kind may have in all runs together."""
MAX_PROBLEMS = 5
"""How many runs with problems are listed."""

Memo = dict[Path, tuple[object, Report]]
"""The reports on the runs of a grid, each with the state of the files that it was made from."""


@dataclass(frozen=True)
class GridRun:
    """A run in the folder of a grid."""

    path: Path
    settings: Settings
    provenance: Provenance | None
    outcome: Outcome | None
    """None if the run has not finished."""
    places: Sequence[Place]
    """Where it is in the grid: one place, or several if an axis does not apply to it."""


def is_grid(path: Path) -> bool:
    """Return whether a folder holds the runs of a grid."""
    return (path / CELLS).is_dir()


def grid_report(path: Path, memo: Memo) -> Report:
    """Return the report on the folder of a grid; `memo` is updated."""
    limit, problems = SizeLimit(), list[str]()
    planned = read_planned(path)
    failures = [found for file in sorted((path / FAILED).glob("*.json")) if (found := read_failure(file))]
    runs = _read_runs(path, planned, problems)
    begun = {run.path.name for run in runs} | {failure.name for failure in failures}
    to_come = [places for name, places in planned.items() if name not in begun]
    reports = _reports(runs, memo)
    problems += _problems(reports)
    limit.note("In the views of single runs, numbers per client are rounded to a 250th of their range.")
    tables = _tables(runs, [place for places in to_come for place in places])
    failed = [
        Fact(limit.name(place_text(each.place) if each.place else each.name), limit.text(each.why))
        for each in failures
    ]
    done, total = sum(run.outcome is not None for run in runs), len(runs) + len(to_come)
    datasets = ", ".join(dict.fromkeys(run.settings.dataset_name for run in runs))
    return Report(
        kind="grid",
        title=f"Comparison on {limit.name(datasets or path.name)}",
        summary=_summary(runs, tables, done, total),
        state="finished" if 0 < done == total and not failed else "unfinished",
        done=done,
        planned=total,
        figures=grid_figures(tables),
        checks=grid_checks(_names(runs, tables), reports, total, failed),
        problems=problems,
        omitted=list(dict.fromkeys([*limit.notes, *(note for report in reports for note in report.omitted)])),
        grid=GridData(tables, reports, failed),
        settings=_common([report.settings for report in reports]),
        provenance=_common([report.provenance for report in reports]),
    )


def _read_runs(path: Path, planned: Mapping[str, Sequence[Place]], problems: list[str]) -> list[GridRun]:
    """Read the settings and the outcome of each run, not its rounds; append what cannot be read."""
    runs = []
    for directory in sorted((path / CELLS).iterdir()):
        try:
            settings = RunDirectory(directory).settings()
            if settings is None:
                raise InputError(f"{CONFIG} is missing", code="missing-file")
        except InputError as error:
            problems.append(f"{directory.name} is left out: {error}")
            continue
        provenance = outcome = None
        with suppress(InputError):  # the report on this run lists the problem
            provenance = RunDirectory(directory).provenance()
        with suppress(InputError):
            outcome = read_outcome(directory / OUTCOME)
        with suppress(InputError):
            if outcome is None and (directory / RESULT).exists():
                outcome = Outcome.of(read(directory))
        places = planned.get(directory.name) or (outcome.places if outcome else [])
        runs.append(GridRun(directory, settings, provenance, outcome, places))
    if not all(run.places for run in runs):
        derived = derive_places([run.settings for run in runs])
        runs = [replace(run, places=places) for run, places in zip(runs, derived, strict=True)]
    return sorted(runs, key=lambda run: (_titles(run), row_label(run.places[0]), run.settings.seed))


def _titles(run: GridRun) -> tuple[str, ...]:
    return tuple(map(panel_title, run.places))


def _reports(runs: Sequence[GridRun], memo: Memo) -> list[Report]:
    """Return the report on each run, compared with Local where the grid has the same run with that method."""
    limit = min(MAX_NUMBERS, MAX_NUMBERS_IN_ALL // max(1, len(runs)))
    alone: dict[tuple[object, ...], RunData | None] = {}
    for run in sorted(runs, key=lambda run: run.settings.method.name != LOCAL):
        same = (_titles(run), run.settings.seed, _clients_and_data(run))
        local = alone.get(same)
        stamp = (limit, local is None, stamp_of(run.path))
        if run.path not in memo or memo[run.path][0] != stamp:
            memo[run.path] = stamp, run_report(RunFiles.read(run.path), SizeLimit(limit), local)
        if run.settings.method.name == LOCAL and run.provenance and run.outcome:
            alone.setdefault(same, memo[run.path][1].run)
    return [memo[run.path][1] for run in runs]


def _clients_and_data(run: GridRun) -> object:
    known = run.provenance
    return known and (known.partition_hash, tuple(known.malicious))


def stamp_of(directory: Path) -> list[tuple[str, int, int]]:
    """Return a value that changes whenever a record in a directory or in a run of a grid does."""
    found = []
    for folder, folders, files in os.walk(directory):
        if len(Path(folder).relative_to(directory).parts) > 1:
            folders.clear()
        for name in files:
            if name.endswith((".toml", ".json", ".jsonl", ".bin")):
                with suppress(OSError):  # it was renamed meanwhile
                    status = os.stat(path := os.path.join(folder, name))
                    found.append((path, status.st_mtime_ns, status.st_size))
    return sorted(found)


def _names(runs: Sequence[GridRun], tables: Sequence[GridTable]) -> list[str]:
    """Return the method and the attack of each run, and the title of its table if there are several."""
    names = []
    for run in runs:
        place = run.places[0]
        attack = column_label(place)
        under = "without attack" if attack == NO_ATTACK else f"under {attack}"
        table = f" ({panel_title(place)})" if len(tables) > 1 else ""
        names.append(f"{row_label(place)} {under}{table}")
    return names


def _problems(reports: Sequence[Report]) -> list[str]:
    """Return what could not be read of single runs: the first problem of each of the first runs."""
    found = [f"{report.title}: {report.problems[0]}" for report in reports if report.problems]
    more = [f"… and of {plural(len(found) - MAX_PROBLEMS, 'more run')}"] if len(found) > MAX_PROBLEMS else []
    return [*found[:MAX_PROBLEMS], *more]


def _common(tables: Sequence[Sequence[Fact]]) -> list[Fact]:
    """Return the facts that all runs have in common."""
    return [fact for fact in tables[0] if all(fact in table for table in tables)] if tables else []


CellKey = tuple[str, str, str]
"""The title of a table, a method and an attack."""


@dataclass(frozen=True)
class CellRuns:
    """The runs of each cell."""

    begun: Mapping[CellKey, Sequence[int]]
    """By position in the list of all runs."""
    to_come: Mapping[CellKey, int]
    """How many have not begun."""

    @classmethod
    def of(cls, runs: Sequence[GridRun], to_come: Sequence[Place]) -> CellRuns:
        """Group runs by the cells of their places."""
        begun: dict[CellKey, list[int]] = {}
        for at, run in enumerate(runs):
            for key in set(map(_key_of, run.places)):
                begun.setdefault(key, []).append(at)
        return cls(begun, Counter(map(_key_of, to_come)))


def _key_of(place: Place) -> CellKey:
    return panel_title(place), row_label(place), column_label(place)


def _tables(runs: Sequence[GridRun], to_come: Sequence[Place]) -> list[GridTable]:
    """Return a table per panel, the one with the most runs first."""
    finished = [(place, run.outcome) for run in runs if run.outcome is not None for place in run.places]
    places = [place for run in runs for place in run.places]
    of_cells = CellRuns.of(runs, to_come)
    tables = [_table(panel, runs, of_cells) for panel in make_panels(finished, [*places, *to_come])]
    return sorted(
        tables, key=lambda table: (-sum(len(c.runs) for row in table.cells for c in row), table.title)
    )


def _table(panel: Panel, runs: Sequence[GridRun], of_cells: CellRuns) -> GridTable:
    columns = sorted(panel.columns, key=lambda attack: (attack != NO_ATTACK, attack))
    cells = {
        method: [_cell(panel, method, attack, runs, of_cells) for attack in columns]
        for method in panel.methods
    }
    position = {
        method: None if (worst := panel.worst(method)) is None else columns.index(worst.attack)
        for method in panel.methods
    }

    def rank(method: str) -> tuple[int, bool, float, str]:
        missing = sum(cell.mean is None for cell in cells[method])
        at = position[method]
        return missing, at is None, -(cells[method][at or 0].mean or 0.0), method

    methods = sorted(panel.methods, key=rank)
    return GridTable(
        title=panel.title,
        methods=methods,
        attacks=list(map(attack_title, columns)),
        cells=[cells[method] for method in methods],
        worst=[position[method] for method in methods],
    )


def _cell(panel: Panel, method: str, attack: str, runs: Sequence[GridRun], of_cells: CellRuns) -> GridCell:
    key = panel.title, method, attack
    begun = of_cells.begun.get(key, [])
    accuracy, worst_client, dacc = (
        panel.estimate(method, attack, figure) for figure in ("tacc", "tacc_worst_client", "dacc")
    )
    return GridCell(
        mean=accuracy.mean if accuracy else None,
        half_width=accuracy.half_width if accuracy else None,
        runs=begun,
        seeds=[str(runs[at].settings.seed) for at in begun],
        missing=len(begun) + of_cells.to_come.get(key, 0) - len(panel.of(method, attack)),
        diverged=accuracy.diverged if accuracy else 0,
        stopped=accuracy.stopped if accuracy else 0,
        worst_client=worst_client.mean if worst_client else None,
        dacc=dacc.mean if dacc else None,
    )


def _summary(runs: Sequence[GridRun], tables: Sequence[GridTable], done: int, planned: int) -> str:
    if not runs:
        return f"A comparison that has not begun: 0 of {plural(planned, 'run')} have finished."
    methods = {method for table in tables for method in table.methods}
    attacks = {attack for table in tables for attack in table.attacks} - {attack_title(NO_ATTACK)}
    under = f"under {plural(len(attacks), 'attack')}" if attacks else "without attack"
    datasets = ", ".join(sorted({run.settings.dataset_name for run in runs}))
    seeds = plural(len({run.settings.seed for run in runs}), "seed")
    finished = (
        f"all {plural(planned, 'run')} have"
        if done == planned
        else f"{done:,} of {plural(planned, 'run')} have"
    )
    return f"{plural(len(methods), 'method')} {under} on {datasets}, with {seeds}: {finished} finished."
