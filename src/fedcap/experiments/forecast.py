"""How long the cells of a grid may take: from finished runs like them, or from one client's training job."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedcap.errors import plural
from fedcap.experiments.cells import Cell
from fedcap.runs import Outcome
from fedcap.simulation import Experiment, Simulation, WorkerPool, make_pool

Kind = tuple[str, str, str]
"""Runs of the same data set, network and method take about as long for a round."""


@dataclass(frozen=True)
class Forecast:
    """How long it may take, and what that rests on."""

    seconds: float
    basis: str

    @classmethod
    def of(cls, cells: Sequence[Cell], known: Iterable[Outcome], slots: int) -> Forecast:
        """Foresee how long the cells take, so many at once, given outcomes of any runs on this machine."""
        paces: dict[Kind, list[float]] = {}
        for outcome in known:
            paces.setdefault(_kind(outcome.settings), []).append(outcome.seconds / outcome.rounds)
        kinds = {cell: _kind(cell.experiment.settings()) for cell in cells}
        strangers = {kind: cell.experiment for cell, kind in kinds.items() if kind not in paces}
        rounds = {kind: math.fsum(found) / len(found) for kind, found in paces.items()}
        rounds |= {kind: seconds_of_round(experiment) for kind, experiment in strangers.items()}
        alike = sum(len(paces[kind]) for kind in set(kinds.values()) if kind in paces)
        parts = [f"{plural(alike, 'finished run')} of the same data set, network and method"] * bool(alike)
        if strangers:
            names = ", ".join(dict.fromkeys(method for *_, method in strangers))
            parts.append(f"one client's training, timed now: {names}")
        total = math.fsum(rounds[kind] * cell.experiment.rounds for cell, kind in kinds.items())
        return cls(total / max(1, min(slots, len(cells))), " and ".join(parts))


def _kind(settings: Mapping[str, Any]) -> Kind:
    dataset = settings["dataset"]
    return Path(dataset.get("path", dataset["name"])).name, settings["model"], settings["method"]["name"]


class _Timed(Exception):
    """The time that a round's training takes is known: nothing more is to be played."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class _OneTask(WorkerPool):
    """Runs only the first task of a batch; the first batch of training ends the run with its time."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def open(self, runner: Any, data: Any) -> None:
        """Prepare for these clients."""
        self._pool.open(runner, data)

    def _run(self, tasks: Any, models: Any, states: Any, rows: Any, count: int, store: Any) -> Any:
        """Return the results of the first task for all tasks; of training, raise how long all would take."""
        found = self._pool.run(tasks[:1], models, states[:1])
        if tasks[0].kind == "train":
            began = time.perf_counter()  # the first time, networks were built
            self._pool.run(tasks[:1], models, states[:1])
            raise _Timed(len(tasks) * (time.perf_counter() - began))
        return replace(found, updates=found.updates.repeat(count, 1), results=found.results * len(tasks))


def seconds_of_round(experiment: Experiment) -> float:
    """Return how long a round's training takes on one core, by the time of one client."""
    try:
        with make_pool(1, experiment.device) as crew:
            Simulation(experiment, _OneTask(crew)).play()
    except _Timed as known:
        return known.seconds
    return 0.0
