"""Seconds by part of a run, its peak memory, and the start of the command line."""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

import fedcap
from benchmarks import report
from benchmarks.work import WORK, peak_memory
from fedcap.runs import Result, RoundRecord
from fedcap.simulation import Simulation

RUNS = (
    ("digits", "fedavg", "none"),
    ("digits", "fedcap", "none"),
    ("digits", "fedcap", "ipm"),
    *((work.name, "fedcap", "ipm") for work in WORK),
)
ROUNDS = 10


class Clock:
    """An observer that records when the run began and when each round was recorded."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def started(self, simulation: Simulation) -> None:
        self.seen.append(time.perf_counter())

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        self.seen.append(time.perf_counter())

    def finished(self, result: Result) -> None:
        pass


def measure(data: str, method: str, attack: str) -> dict[str, object]:
    """Play one run, with records and checkpoints, in this process."""
    work = next((work for work in WORK if work.name == data), None)
    settings = {"dataset": data} if work is None else work.settings()
    experiment = fedcap.Experiment(**settings, method=method, attack=attack, rounds=ROUNDS)
    clock = Clock()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = experiment.run(out=Path(folder) / "run", observers=[clock])
    parts = [asdict(record.seconds) for record in result.history]
    played = {part: sum(seconds[part] for seconds in parts) for part in parts[0]}
    return {
        "run": f"{data}, {method}, {attack}",
        "start, s": clock.seen[0] - began,
        **{f"{part}, s": played[part] for part in ("train", "evaluate", "attack", "server")},
        "records, s": clock.seen[-1] - clock.seen[0] - played["total"],
        "total, s": clock.seen[-1] - began,
        "peak memory, GB": peak_memory(),
        "of a worker, GB": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20,
    }


def main() -> None:
    rows = []
    for run in RUNS:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
            rows.append(fresh.submit(measure, *run).result())
        report.progress(rows[-1])
    title = f"Seconds by part of a run of {ROUNDS} rounds, with records and checkpoints"
    report.write("parts", title, rows, "one in the process of the run and in each worker process")
