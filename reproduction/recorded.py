"""Finished runs of the paper's cells, found by their settings; data and run directories are not needed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from fedcap import Experiment
from fedcap.experiments.grid import Cell
from fedcap.experiments.store import current_settings
from fedcap.runs import Outcome, settings_key
from reproduction.cells import PaperCell

_INDEPENDENT = ("rounds", "malicious", "assumed", "participation", "eval_every")
"""Settings on which no other setting depends: they are set after the others are resolved, which is cached."""


@cache
def _resolve(settings: str) -> Mapping[str, Any]:
    return Experiment(**json.loads(settings)).settings()


def resolved(cell: PaperCell, rounds: int | None = None) -> dict[str, Any]:
    """Return every setting of a cell's run, with seed 0."""
    given = cell.settings(rounds)
    over = {key: given.pop(key) for key in _INDEPENDENT if key in given}
    return {**_resolve(json.dumps(given, sort_keys=True)), **over}


def run_key(cell: PaperCell, rounds: int | None = None) -> str:
    """Return the hash of a cell's settings without the seed: cells with equal keys share their runs."""
    return settings_key(resolved(cell, rounds))


def distinct(cells: Iterable[PaperCell], rounds: int | None = None) -> dict[str, PaperCell]:
    """Return the distinct runs behind cells, each with the first of its cells, by their keys."""
    found: dict[str, PaperCell] = {}
    for cell in cells:
        found.setdefault(run_key(cell, rounds), cell)
    return found


def grid_cells(cells: Iterable[PaperCell], seeds: Sequence[int], rounds: int | None = None) -> list[Cell]:
    """Return the runs that cells need as cells of a grid, each once, seed by seed."""
    runs = distinct(cells, rounds).values()
    return [
        Cell(cell.place(seed), Experiment(**cell.settings(rounds), seed=seed))
        for seed in seeds
        for cell in runs
    ]


class Recorded:
    """The outcomes of finished runs, by the cells that they belong to."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self._by_key: dict[str, dict[int, Outcome]] = {}
        for outcome in outcomes:
            key = settings_key({**current_settings(outcome.settings), "seed": 0})
            self._by_key.setdefault(key, {})[int(outcome.settings["seed"])] = outcome

    def of(self, cell: PaperCell, rounds: int | None = None) -> Mapping[int, Outcome]:
        """Return the outcomes of a cell's runs by seed."""
        return dict(sorted(self._by_key.get(run_key(cell, rounds), {}).items()))

    def progress(self, cells: Iterable[PaperCell], rounds: int | None = None) -> tuple[int, int]:
        """Return how many runs behind cells have finished with at least one seed, and how many there are."""
        runs = distinct(cells, rounds).values()
        return sum(bool(self.of(cell, rounds)) for cell in runs), len(runs)
