"""The runs of a grid, as its folder has them: what each was set to, and where in a map it stands.

The folder does not say which axes the grid had. So what varies between runs of one data set is read off their
settings: options of methods and attacks name rows and columns, all else makes another map.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedcap.errors import InputError
from fedcap.registry import spelling
from fedcap.report.story.paper import Paper, Said
from fedcap.runs import (
    CONFIG,
    FREE_TO_CHANGE,
    RESULT,
    Named,
    Outcome,
    Provenance,
    RunDirectory,
    Settings,
    flattened,
    read,
)
from fedcap.runs.outcome import CELLS, FAILED, OUTCOME, CellFailure, read_failure, read_outcome, read_planned

NO_ATTACK, MEAN = "none", "mean"
APART = {"seed", "eval_every", "device", "dataset.path", *FREE_TO_CHANGE}
"""Settings that make no other map."""


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    settings: Settings
    outcome: Outcome | None
    """None if it has not finished."""
    path: Path | None = None
    """Its directory; none if its outcome is all there is."""
    provenance: Provenance | None = None
    said: Said | None = None
    """What the paper says of its setting."""
    panels: Sequence[str] = ()
    """The maps it stands in: one, unless it goes with several, as a run without attackers does."""
    rows: Sequence[str] = ()
    """The lines it stands in: one, unless the paper has it in several."""
    column: str = ""

    @property
    def roster(self) -> tuple[str, ...] | None:
        """Who of its clients is malicious; none if that is not known."""
        if self.provenance is not None:
            return tuple(self.provenance.malicious)
        if self.outcome is not None and self.outcome.clients:
            return tuple(client.id for client in self.outcome.clients if client.malicious)
        return None

    @property
    def partition(self) -> str:
        """The hash of who has which data."""
        if self.provenance is not None:
            return self.provenance.partition_hash
        return str(self.outcome.provenance.get("partition_hash", "")) if self.outcome else ""


@dataclass(frozen=True)
class Folder:
    """What the folder of a grid holds."""

    cells: Sequence[Cell]
    failures: Sequence[CellFailure]
    troubles: Sequence[str]
    to_come: int = 0
    """How many runs are planned, of which there is nothing yet."""


def is_grid(path: Path) -> bool:
    """Whether a folder has the runs of a grid, or the outcomes of runs as files."""
    return (path / CELLS).is_dir() or any(_is_outcome(found) for found in path.glob("*.json"))


def _is_outcome(path: Path) -> bool:
    with suppress(InputError):
        return read_outcome(path) is not None
    return False


def read_cells(path: Path, paper: Paper) -> Folder:
    """Read every run of a folder that can be read."""
    cells: list[Cell] = []
    troubles: list[str] = []
    for directory in sorted((path / CELLS).glob("*/")) if (path / CELLS).is_dir() else ():
        try:
            cells.append(_cell(directory))
        except InputError as error:
            troubles.append(f"{directory.name} is left out: {error}")
    for file in () if (path / CELLS).is_dir() else sorted(path.glob("*.json")):
        try:
            if (outcome := read_outcome(file)) is not None:
                settings = Settings.model_validate({"checkpoint_every": 1, **outcome.settings})
                cells.append(Cell(settings, outcome))
        except (InputError, ValidationError) as error:
            troubles.append(f"{file.name} is left out: {str(error).splitlines()[0]}")
    failures = [read_failure(found) for found in sorted((path / FAILED).glob("*.json"))]
    failed = [failure for failure in failures if failure is not None]
    placed = _placed([replace(cell, said=paper(_plain(cell.settings))) for cell in cells])
    begun = {cell.path.name for cell in cells if cell.path} | {failure.name for failure in failed}
    return Folder(placed, failed, troubles, len(read_planned(path).keys() - begun))


def _cell(path: Path) -> Cell:
    """Read what a run was set to and what it came to, without its rounds."""
    directory = RunDirectory(path)
    settings = directory.settings()
    if settings is None:
        raise InputError(f"there is no {CONFIG} in it")
    facts = outcome = None
    with suppress(InputError):  # its own story tells
        facts = directory.provenance()
    with suppress(InputError):
        outcome = read_outcome(path / OUTCOME)
    with suppress(InputError):
        if outcome is None and (path / RESULT).exists():
            outcome = Outcome.of(read(path))
    return Cell(settings, outcome, path, facts)


def _plain(settings: Settings) -> dict[str, Any]:
    return settings.model_dump(mode="json")


def _placed(cells: Sequence[Cell]) -> list[Cell]:
    """Return the runs with the map, the lines and the column that each stands in."""
    made = []
    for name in dict.fromkeys(cell.settings.dataset_name for cell in cells):
        own = [cell for cell in cells if cell.settings.dataset_name == name]
        varying = _varying(map(_others, own))
        tables = [{key: value for key, value in _others(cell).items() if key in varying} for cell in own]
        full = [table for table in tables if len(table) == len(varying)]
        for cell, table in zip(own, tables, strict=True):
            fitting = [other for other in full if table.items() <= other.items()] or [table]
            titles = dict.fromkeys(", ".join([name, *_told(other)]) for other in fitting)
            made.append(replace(cell, panels=list(titles)))
    together: dict[tuple[str, ...], list[Cell]] = {}
    for cell in made:
        key = tuple(cell.panels)
        if key not in together:
            together[key] = [other for other in made if {*other.panels} & {*key}]
    options = {key: _Options(own) for key, own in together.items()}
    placed = [_in_panel(cell, options[tuple(cell.panels)]) for cell in made]
    return sorted(placed, key=lambda cell: (cell.panels, cell.rows, cell.column, cell.settings.seed))


class _Options:
    """The options that vary between runs with the same method, or the same attack."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.methods = _by_name(cell.settings.method for cell in cells)
        self.attacks = _by_name(cell.settings.attack for cell in cells)


def _by_name(things: Iterable[Named]) -> dict[str, set[str]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for thing in things:
        found.setdefault(thing.name, []).append(thing.options)
    return {name: _varying(tables) for name, tables in found.items()}


def _in_panel(cell: Cell, varying: _Options) -> Cell:
    method, attack = cell.settings.method, cell.settings.attack
    column = _label(attack.name, attack.options, varying.attacks[attack.name])
    options, vary = dict(method.options), varying.methods[method.name]
    rule = spelling(options.pop("rule", ""))
    called = f"{method.name}+{rule}" if rule and ("rule" in vary or rule != MEAN) else method.name
    rows: Sequence[str] = [_label(called, options, vary)]
    if vary - {"rule"} and cell.said is not None and cell.said.rows:
        rows = cell.said.rows
    return replace(cell, rows=rows, column="no attack" if column == NO_ATTACK else column)


def _label(name: str, options: Mapping[str, Any], varying: Collection[str]) -> str:
    told = _told({key: options.get(key) for key in options if key in varying})
    return f"{name} ({', '.join(told)})" if told else name


def _told(options: Mapping[str, Any]) -> list[str]:
    return [f"{key} {_spelled(value)}" for key, value in options.items()]


def _spelled(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_spelled, value)) or "none"
    return spelling(value) if isinstance(value, Mapping) else str(value)


def _others(cell: Cell) -> dict[str, Any]:
    """Return the settings that are neither the method's nor the attack's, by names with dots."""
    plain = _plain(cell.settings)
    apart = {"method", "attack"} | ({"malicious"} if cell.settings.attack.name == NO_ATTACK else set())
    flat = flattened({key: value for key, value in plain.items() if key not in apart})
    return {key: _spelled(value) for key, value in flat if key not in APART}


def _varying(tables: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the keys under which tables that have them hold different values."""
    values: dict[str, set[str]] = {}
    for table in tables:
        for key, value in table.items():
            values.setdefault(key, set()).add(json.dumps(value, sort_keys=True))
    return {key for key, found in values.items() if len(found) > 1}
