"""Peak memory of a round with 1,000 clients of 156,810 weights: `python -m benchmarks.memory [REV]`.

Each run is played in its own process by one worker, which is the process itself, so that the peak covers
server, attack, training and evaluation. With REV, the same runs are played with the code of that revision.
The first round does not count: FedCAP's pool is empty before it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import fedcap
from benchmarks.work import peak_memory

HERE = Path(__file__).parents[1]
CLIENTS, WEIGHTS, ROUNDS = 1000, 156_810, 3
TRAIN, TEST = 2, 1
"""Samples of each client: few, so that the data takes little of the memory."""
MATRIX = CLIENTS * WEIGHTS * 4 / 2**30
"""The gigabytes of one N×D matrix."""
RUNS: dict[str, dict[str, Any]] = {
    "fedavg": {"method": "fedavg"},
    "fedavg, Min-Max": {"method": "fedavg", "attack": "min-max"},
    "fedcap": {"method": {"name": "fedcap", "t_norm": 1e9}},
    "fedcap, pools in bfloat16": {"method": {"name": "fedcap", "t_norm": 1e9, "pools": "bfloat16"}},
    "fedcap, Min-Max": {"method": {"name": "fedcap", "t_norm": 1e9}, "attack": "min-max"},
    "fedcap hardened, Min-Max": {"method": {"name": "fedcap", "preset": "hardened"}, "attack": "min-max"},
}


class PeakObserver:
    """An observer that records the peak memory of each round."""

    def __init__(self) -> None:
        self.peaks: list[float] = []

    def started(self, simulation: object) -> None:
        reset_peak()

    def round_done(self, simulation: object, record: object) -> None:
        self.peaks.append(peak_memory())
        reset_peak()

    def finished(self, result: object) -> None:
        pass


def reset_peak() -> None:
    """Let Linux measure this process's peak memory from now on."""
    Path("/proc/self/clear_refs").write_text("5")


def play(name: str, clients: int) -> float:
    """Play a run in this process; return the gigabytes of the largest round after the first."""
    generator = torch.Generator().manual_seed(0)
    count = clients * (TRAIN + TEST)
    data = torch.randn(count, 3, 32, 32, generator=generator), torch.arange(count) % 10
    owners = torch.arange(clients).repeat_interleave(TRAIN + TEST)
    tests = (torch.arange(TRAIN + TEST) >= TRAIN).repeat(clients)
    experiment = fedcap.Experiment(
        dataset={"data": data, "client": owners, "test": tests},
        model="cnn-cifar10",
        training={"lr": 0.01, "epochs": 1, "batch_size": TRAIN},
        rounds=ROUNDS,
        workers=1,
        **RUNS[name],
    )
    observer = PeakObserver()
    experiment.run(observers=[observer])
    return max(observer.peaks[1:])


def measure(name: str, tree: Path, clients: int = CLIENTS) -> float:
    """Return the peak of a run that is played with the code of a tree, in GB."""
    process = subprocess.run(
        [sys.executable, "-P", str(Path(__file__)), name, str(clients)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(HERE)])},
        capture_output=True,
        text=True,
    )
    if process.returncode:
        raise RuntimeError(f"{name} in {tree}: {process.stderr}")
    answer = json.loads(process.stdout.splitlines()[-1])
    if not Path(answer["package"]).is_relative_to(tree):
        raise RuntimeError(f"the run in {tree} imports {answer['package']}")
    return float(answer["peak"])


def main(revision: str | None = None) -> None:
    """Measure this tree and, if given, a revision."""
    from benchmarks import report
    from benchmarks.against import checkout

    rows: list[dict[str, Any]] = [
        {"run": name, "peak, GB": peak, "N×D matrices": peak / MATRIX}
        for name in RUNS
        for peak in [measure(name, HERE)]
    ]
    if revision is not None:
        with checkout(revision) as tree:
            for row in rows:
                known = "pools" not in RUNS[row["run"]]["method"]  # earlier trees do not have this option
                before = measure(row["run"], tree) if known else None
                share = None if before is None else 100 * row["peak, GB"] / before
                row |= {f"at {revision}, GB": before, "share, %": share}
    for row in rows:
        report.progress(row)
    about = f"{CLIENTS:,} clients, {WEIGHTS:,} weights: one N×D matrix has {MATRIX:.2f} GB."
    report.write("memory", "Peak memory of a round", rows, "one", about)


if __name__ == "__main__":
    if len(sys.argv) <= 2:
        main(*sys.argv[1:])
    else:
        torch.set_num_threads(1)
        peak = play(sys.argv[1], int(sys.argv[2]))
        print(json.dumps({"package": fedcap.__file__, "peak": peak}))
