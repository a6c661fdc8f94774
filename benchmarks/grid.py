"""Cells an hour: a grid, which plays one cell on each core, beside the same cells one after the other.

One after the other, each has a crew of two workers, as `fedcap run` would have on two cores. Both keep all
records and drop the models, in one run of this benchmark, with cells of other seeds each, so that neither
finds work of the other's done. The grid's time has the start of its workers in it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import fedcap
from benchmarks import report
from fedcap.experiments.cells import Cell
from fedcap.experiments.engines.base import Quiet
from fedcap.experiments.engines.local import LocalEngine
from fedcap.experiments.store import CellStore
from fedcap.simulation import available_cores, make_crew

METHODS, ATTACKS = ("fedavg", "fedcap"), ("none", "sign-flipping", "lie", "min-max", "ipm")
SEEDS, ROUNDS, WORKERS, TURNS = 3, 30, 2, 2


def cells(first_seed: int) -> list[Cell]:
    """Return the cells of one grid, 30 of them."""
    seeds = range(first_seed, first_seed + SEEDS)
    return fedcap.Grid(methods=METHODS, attacks=ATTACKS, seeds=seeds, rounds=ROUNDS).cells()


def in_a_grid(planned: Sequence[Cell], store: CellStore) -> None:
    """Play the cells several at once, one worker each."""
    LocalEngine().run(planned, store, Quiet())


def one_by_one(planned: Sequence[Cell], store: CellStore) -> None:
    """Play the cells one after the other with two workers."""
    with make_crew(WORKERS) as crew:
        for cell in planned:
            cell.experiment.run(store.directory(cell), crew)
            store.save(cell)


def seconds(play: Callable[[Sequence[Cell], CellStore], None], first_seed: int) -> float:
    """Return how long it takes to play all cells of a grid."""
    planned = cells(first_seed)
    with tempfile.TemporaryDirectory() as folder:
        store = CellStore(Path(folder))
        store.open()
        began = time.perf_counter()
        play(planned, store)
        took = time.perf_counter() - began
        assert all(store.outcome(cell) is not None for cell in planned)
    return took


def main() -> None:
    count = len(cells(0))
    rows = []
    for turn in range(TURNS):
        grid, alone = seconds(in_a_grid, SEEDS * 2 * turn), seconds(one_by_one, SEEDS * (2 * turn + 1))
        rows.append(
            {
                "turn": turn + 1,
                "cells": count,
                "grid, cells an hour": 3600 * count / grid,
                "one by one": 3600 * count / alone,
                "times one by one": alone / grid,
            }
        )
        report.progress(rows[-1])
    used = (
        f"one in each of {available_cores()} workers of the grid, one in each of {WORKERS} workers one by one"
    )
    about = f"Digits, {ROUNDS} rounds: {', '.join(METHODS)} under {', '.join(ATTACKS)}, {SEEDS} seeds."
    report.write("grid", "Cells an hour", rows, used, about)
