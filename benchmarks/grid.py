"""Cells per hour of a grid, which plays one cell on each core, compared with one cell after the other.

The cells are played one after the other in two ways: each by `fedcap run` with two workers, as a script
without the grid does it, and all in one process with one pool of two workers. All ways write all records.
Each way plays other seeds, so that it finds no finished cells. The grid's time includes the start of its
workers.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import fedcap
from benchmarks import report
from fedcap.experiments.engine import LogFailures
from fedcap.experiments.grid import Cell
from fedcap.experiments.local import LocalEngine
from fedcap.experiments.store import CellStore
from fedcap.simulation import available_cores, make_pool

METHODS, ATTACKS = ("fedavg", "fedcap"), ("none", "sign-flipping", "lie", "min-max", "ipm")
SEEDS, ROUNDS, WORKERS = 3, 30, 2


def cells(first_seed: int) -> list[Cell]:
    """Return the cells of one grid, 30 of them."""
    seeds = range(first_seed, first_seed + SEEDS)
    return fedcap.Grid(methods=METHODS, attacks=ATTACKS, seeds=seeds, rounds=ROUNDS).cells()


def in_a_grid(planned: Sequence[Cell], store: CellStore) -> None:
    """Play the cells several at once, one worker each."""
    LocalEngine().run(planned, store, LogFailures())


def by_command(planned: Sequence[Cell], store: CellStore) -> None:
    """Play the cells one after the other, each by `fedcap run` with two workers."""
    for cell in planned:
        made = cell.experiment
        chosen = ["--method", made.method.name, "--attack", made.attack.name, "--seed", str(made.seed)]
        given = [*chosen, "--rounds", str(ROUNDS), "--workers", str(WORKERS), "--out", store.directory(cell)]
        subprocess.run([sys.executable, "-m", "fedcap", "run", *map(str, given), "-q"], check=True)


def one_by_one(planned: Sequence[Cell], store: CellStore) -> None:
    """Play the cells one after the other with one pool of two workers."""
    with make_pool(WORKERS) as pool:
        for cell in planned:
            cell.experiment.run(store.directory(cell), pool)
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
    ways = (in_a_grid, by_command, one_by_one)
    grid, command, alone = (seconds(way, SEEDS * turn) for turn, way in enumerate(ways))
    row = {
        "cells": count,
        "grid, cells per hour": 3600 * count / grid,
        "fedcap run, one after the other": 3600 * count / command,
        "times fedcap run": command / grid,
        "in one process, one after the other": 3600 * count / alone,
        "times one process": alone / grid,
    }
    report.progress(row)
    used = (
        f"one in each of {available_cores()} workers of the grid, one in each of {WORKERS} workers of a run"
    )
    about = f"Digits, {ROUNDS} rounds: {', '.join(METHODS)} under {', '.join(ATTACKS)}, {SEEDS} seeds."
    report.write("grid", "Cells per hour", [row], used, about)
