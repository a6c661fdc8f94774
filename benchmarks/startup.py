"""The start of a command, and the first round of a small run, in new processes: the best of five.

The run is FedCAP on `digits` under IPM. The time to its start begins with the import of fedcap. In a process
with other threads, worker processes are new interpreters; else they are forks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from benchmarks import report

REPEATS = 5
SCRIPT = """
import json, sys, threading, time
began = time.perf_counter()
import fedcap
at = []
class Clock:
    def started(self, simulation): at.append(time.perf_counter())
    def round_done(self, simulation, record): at.append(time.perf_counter())
    def finished(self, result): pass
ended = threading.Event()
if sys.argv[2] == "threads":
    threading.Thread(target=ended.wait).start()
workers = int(sys.argv[1]) or None
fedcap.Experiment(attack="ipm", rounds=2, workers=workers).run(observers=[Clock()])
ended.set()
print(json.dumps([at[0] - began, *(b - a for a, b in zip(at, at[1:]))]))
"""


def command(*words: str) -> float:
    """Return the seconds of a command."""
    began = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True)
    return time.perf_counter() - began


def rounds(workers: int, threads: str) -> list[float]:
    """Return the seconds to the start of a run, of its first round and of its second one."""
    words = [sys.executable, "-c", SCRIPT, str(workers), threads]
    answer = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found: list[float] = json.loads(answer.splitlines()[-1])
    return found


def main() -> None:
    """Measure and write the table."""
    seconds = min(command(sys.executable, "-m", "fedcap", "--help") for _ in range(REPEATS))
    rows: list[dict[str, Any]] = [
        {"what": "fedcap --help", "to the start, s": seconds, "first round, s": None, "second round, s": None}
    ]
    for what, workers, threads in (
        ("one worker", 1, "none"),
        ("a worker per core", 0, "none"),
        ("a worker per core, other threads", 0, "threads"),
    ):
        found = [rounds(workers, threads) for _ in range(REPEATS)]
        start, first, second = (min(column) for column in zip(*found, strict=True))
        rows.append(
            {"what": what, "to the start, s": start, "first round, s": first, "second round, s": second}
        )
        report.progress(rows[-1])
    about = " ".join((__doc__ or "").split("\n\n")[1].split())
    report.write("startup", "Start of a command and of a small run", rows, "1 in each worker process", about)
