"""The overhead of Ray: its start, an empty task, and a grid's cells per hour compared with the local engine.

The cluster consists of this machine. Its start is not part of the grid's time.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable

from benchmarks import grid, report
from fedcap.experiments import RayEngine
from fedcap.experiments.engine import LogFailures
from fedcap.simulation import available_cores
from fedcap.training.workers.ray import RayCluster

TASKS = 500


def took(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def nothing() -> None:
    """Do nothing: an empty task."""


def costs(cluster: RayCluster, tasks: int = TASKS) -> dict[str, float]:
    """Return the seconds of a first task, which starts a process, and the milliseconds of one among many."""
    ray = cluster.ray
    task = ray.remote(num_cpus=1)(nothing)
    first = took(lambda: ray.get(task.remote()))
    many = took(lambda: ray.get([task.remote() for _ in range(tasks)]))
    return {"first task, s": first, "one task, ms": 1000 * many / tasks}


def main() -> None:
    if importlib.util.find_spec("ray") is None:
        print("ray is not installed: pip install 'fedcap[ray]'", flush=True)
        return
    began = time.perf_counter()
    with RayCluster() as cluster:
        row: dict[str, object] = {"start, s": time.perf_counter() - began, **costs(cluster)}
        engine, count = RayEngine(), len(grid.cells(0))
        on_ray = grid.seconds(lambda cells, store: engine.run(cells, store, LogFailures()), 0)
        local = grid.seconds(grid.in_a_grid, grid.SEEDS)
    row |= {
        "cells": count,
        "Ray, cells per hour": 3600 * count / on_ray,
        "local, cells per hour": 3600 * count / local,
        "times local": local / on_ray,
    }
    report.progress(row)
    about = f"The mean of {TASKS} empty tasks; the cells of grid.md: digits, {grid.ROUNDS} rounds."
    used = f"one in each of {available_cores()} worker processes"
    report.write("ray", "The overhead of Ray on one machine", [row], used, about)
