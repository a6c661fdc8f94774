"""Where the time of a run goes, what it needs of memory, and how soon the command line answers."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import asdict

import fedcap
from benchmarks import report

RUNS = (("fedavg", "none"), ("fedcap", "none"), ("fedcap", "ipm"))


def main() -> None:
    rows = []
    for method, attack in RUNS:
        began = time.perf_counter()
        result = fedcap.Experiment(method=method, attack=attack).run()
        total = time.perf_counter() - began
        parts = [asdict(record.seconds) for record in result.history]
        played = {part: sum(seconds[part] for seconds in parts) for part in parts[0]}
        rows.append(
            {
                "run on digits": f"{method}, {attack}",
                **{f"{part}, s": played[part] for part in ("train", "evaluate", "attack", "server")},
                "records and the rest, s": played["total"] - sum(played.values()) + played["total"],
                "start, s": total - played["total"],
                "peak memory, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            }
        )
        report.progress(rows[-1])
    report.write("parts", "Seconds by part of a run of 30 rounds on digits", rows)
    command = [sys.executable, "-c", "from fedcap.cli import main; main(['--help'])"]
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - began)
    report.write("startup", "Start of the command line", [{"command": "fedcap --help", "s": min(times)}])
