"""The outcomes of a whole grid in one file, a line each, for a repository.

The first line has what all of them have in common of settings and provenance; the others have where the cell
stands and what is its own. Curves and norms are left out, and so are clients unless they are asked for, which
are kept as columns: 1,000 cells take about a megabyte.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from fedcap.errors import InputError
from fedcap.experiments.cells import Cell, Found
from fedcap.files import write_aside
from fedcap.runs import Curve, Outcome, finite
from fedcap.simulation import Experiment

SHARED = ("settings", "provenance")
"""What is mostly the same in all cells of a grid."""
CLIENTS = "clients"


def pack(found: Found, path: Path, clients: bool = False) -> None:
    """Write finished cells into one file; with `clients`, what became of each client stays."""
    outcomes = [_plain(outcome, clients) for _, outcome in found]
    common = {name: _common([outcome[name] for outcome in outcomes]) for name in SHARED}
    lines: list[Any] = [common]
    for (cell, _), outcome in zip(found, outcomes, strict=True):
        own = {name: _without(outcome[name], common[name]) for name in SHARED}
        lines.append({"place": dict(cell.place), **outcome, **own, CLIENTS: _columns(outcome[CLIENTS])})
    texts = (json.dumps(line, ensure_ascii=False, separators=(",", ":"), allow_nan=False) for line in lines)
    write_aside(path, "".join(f"{text}\n" for text in texts))


def unpack(path: Path) -> Found:
    """Read finished cells back; where they stood is known of them, and not how to play them again."""
    found = []
    try:
        common, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        for line in lines:
            place = line.pop("place")
            own = {name: _with(line[name], common[name]) for name in SHARED}
            whole = {**line, **own, CLIENTS: _rows(line[CLIENTS])}
            found.append((Cell(place, cast("Experiment", None)), Outcome.from_json(json.dumps(whole))))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{path} is damaged, or was packed by another version: delete it, and write it anew with fedcap"
            " paper pack"
        ) from None
    return found


def _plain(outcome: Outcome, clients: bool) -> dict[str, Any]:
    """Return an outcome without what takes most of its room."""
    brief = replace(outcome, curve=Curve([], [], []), norms=None)
    return finite(asdict(brief if clients else replace(brief, clients=[], peaks={})))  # type: ignore[no-any-return]


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows of the same keys as a column for each."""
    return {key: [row[key] for row in rows] for key in (rows[0] if rows else ())}


def _rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return columns as rows."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _common(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all nested tables agree on."""
    first, *others = tables
    found = {}
    for key, value in first.items():
        if all(key in other for other in others):
            if isinstance(value, Mapping) and all(isinstance(other[key], Mapping) for other in others):
                found[key] = _common([table[key] for table in tables])
            elif all(other[key] == value for other in others):
                found[key] = value
    return found


def _without(table: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a nested table has besides what is common."""
    left = {}
    for key, value in table.items():
        if key not in common:
            left[key] = value
        elif isinstance(value, Mapping) and value != common[key]:
            left[key] = _without(value, common[key])
    return left


def _with(table: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """Return a nested table with what is common."""
    both = {key: _with(value, common[key]) for key, value in table.items() if key in common}
    return {**common, **table, **both}
