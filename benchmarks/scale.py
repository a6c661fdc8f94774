"""What a run costs as more clients are registered: start-up, seconds a round, memory and disk.

Each case is a process of its own. K clients have 16 samples each, of 48 bytes and 10 classes, in a file that
fedcap has decoded once before; the network has 52,010 weights. Under IPM 30 % of the clients are malicious.
A sample of 100 clients is tested in the last round. Start-up is the time from `Experiment` to the first
round, without Python's imports. Seconds are wall-clock time and, because other programs may use the machine,
the processor time of all processes. Memory is the proportional set size (PSS) of all processes together,
sampled four times a second, files that are mapped included.

The plain loop is FedAvg as most projects write it: a list of clients, each with its data sets and loaders.
The published case is logistic regression by FedAvg with 1,000 clients, 10 a round, 100 rounds: FLUTE
publishes 3:20 min and Flower 1.0 30:14 min for it, on their machines and on MNIST. Here the images are those
of handwritten62, which has 8,608 of them, so a client has 8 samples.

`python -m benchmarks.scale CASE …` measures only some cases; their names are in the first column.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import fedcap
from benchmarks import report
from fedcap import models
from fedcap.simulation import Simulation

SAMPLES, FEATURES, CLASSES = 16, 48, 10
TESTED = 100
ROUNDS = 10
TRAINING = {"lr": 0.05, "epochs": 5, "batch_size": 10}

CASES: dict[str, dict[str, Any]] = {
    f"{method}, {clients:,} clients, {part} a round": {"method": method, "clients": clients, "part": part}
    for method in ("fedavg", "fedcap")
    for part in (20, 100)
    for clients in (100, 200, 1_000, 10_000, 100_000, 1_000_000)
    if part < clients
}
CASES["fedcap, 20,000 clients, 20 a round, 4 rounds"] = {
    "method": "fedcap",
    "clients": 20_000,
    "part": 20,
    "rounds": 4,
}
CASES |= {
    f"plain loop, {clients:,} clients, 20 a round": {"method": "plain", "clients": clients, "part": 20}
    for clients in (100, 10_000, 100_000)
}
CASES["logistic regression, 1,000 clients, 10 a round, 100 rounds"] = {"method": "published"}


def logistic() -> nn.Module:
    """Logistic regression on images of 28×28."""
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 62))


def data_file(folder: Path, clients: int) -> Path:
    """Return a file with the samples of all clients, which is made if it is not there."""
    path = folder / f"scale-{clients}.npz"
    if not path.exists():
        rng = np.random.default_rng(0)
        x = rng.integers(0, 256, (SAMPLES * clients, FEATURES), dtype=np.uint8)
        np.savez(path, x=x, y=rng.integers(0, CLASSES, SAMPLES * clients, dtype=np.uint8))
    return path


def experiment(case: dict[str, Any], folder: Path) -> fedcap.Experiment:
    """Return the experiment of a case."""
    if case["method"] == "published":
        return fedcap.Experiment(
            dataset={"name": "handwritten62", "partition": "iid", "clients": 1_000, "samples": 8},
            model="benchmarks.scale:logistic",
            method="fedavg",
            participation=0.01,
            rounds=100,
            eval_every=100,
            training={"lr": 0.03, "epochs": 1},
        )
    rounds = case.get("rounds", ROUNDS)
    attacked = case["method"] == "fedcap"
    return fedcap.Experiment(
        dataset={
            "path": str(data_file(folder, case["clients"])),
            "name": "npz",
            "clients": case["clients"],
            "samples": SAMPLES,
        },
        model="mlp",
        method=case["method"],
        attack="ipm" if attacked else "none",
        participation=case["part"] / case["clients"],
        rounds=rounds,
        eval_every=rounds,
        eval_clients=TESTED,
        training=TRAINING,
    )


def children() -> list[int]:
    """Return the ids of this process and of its worker processes."""
    task = Path(f"/proc/{os.getpid()}/task")
    found = [(path / "children").read_text().split() for path in task.iterdir()]
    return [os.getpid(), *(int(process) for processes in found for process in processes)]


def processor_seconds() -> float:
    """Return the processor time of all processes so far."""
    total = 0.0
    for process in children():
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


class Clock:
    """An observer that notes when the run started, and the seconds of its rounds."""

    def __init__(self) -> None:
        self.at = [(time.perf_counter(), processor_seconds())]

    def started(self, simulation: Simulation) -> None:
        self._note()

    def round_done(self, simulation: Simulation, record: object) -> None:
        self._note()

    def finished(self, result: object) -> None:
        pass

    def _note(self) -> None:
        self.at.append((time.perf_counter(), processor_seconds()))

    def row(self) -> dict[str, float]:
        """Return the start-up, and the median round between the first and the last."""
        wall, used = (np.diff([moment[part] for moment in self.at]) for part in (0, 1))
        return {
            "start-up s": wall[0],
            "start-up, processor s": used[0],
            "s a round": float(np.median(wall[2:-1])),
            "processor s a round": float(np.median(used[2:-1])),
            "last round, processor s": used[-1],
            "whole run s": float(wall.sum()),
        }


def play(case: dict[str, Any], folder: Path) -> dict[str, float]:
    """Play a case in this process."""
    clock = Clock()
    if case["method"] == "plain":
        plain_loop(data_file(folder, case["clients"]), case["clients"], case["part"], clock)
        return clock.row() | {"disk MB": 0.0}
    with tempfile.TemporaryDirectory(dir=folder) as out:
        experiment(case, folder).run(out=Path(out) / "run", observers=[clock])
        disk = sum(path.stat().st_size for path in Path(out).rglob("*") if path.is_file())
    return clock.row() | {"disk MB": disk / 1e6}


def plain_loop(file: Path, clients: int, part: int, clock: Clock) -> None:
    """Play FedAvg as a list of client objects; test the clients that took part."""
    with np.load(file) as arrays:
        x, y = torch.from_numpy(arrays["x"]).float() / 127.5 - 1, torch.from_numpy(arrays["y"]).long()
    rows = torch.randperm(len(x)).view(clients, SAMPLES)
    cut = SAMPLES * 3 // 4
    parts = [
        (TensorDataset(x[row[:cut]], y[row[:cut]]), TensorDataset(x[row[cut:]], y[row[cut:]])) for row in rows
    ]
    model = models.builder("mlp", (FEATURES,), CLASSES)()
    clock.started(None)  # type: ignore[arg-type]
    for _ in range(ROUNDS):
        states = []
        for client in torch.randperm(clients)[:part].tolist():
            local = copy.deepcopy(model)
            optimiser = torch.optim.SGD(local.parameters(), lr=TRAINING["lr"])
            for _ in range(int(TRAINING["epochs"])):
                for inputs, labels in DataLoader(parts[client][0], batch_size=10, shuffle=True):
                    optimiser.zero_grad()
                    functional.cross_entropy(local(inputs), labels).backward()
                    optimiser.step()
            states.append(local.state_dict())
        mean = {key: torch.stack([state[key] for state in states]).mean(dim=0) for key in states[0]}
        model.load_state_dict(mean)
        clock.round_done(None, None)  # type: ignore[arg-type]


def memory(process: int) -> float:
    """Return the gigabytes of a process and of its children."""
    total = 0
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        found = [child for task in tasks for child in (task / "children").read_text().split()]
        for each in (str(process), *found):
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except (OSError, IndexError):  # a process has ended
        return 0.0
    return total / 2**20


def measured(name: str, folder: Path) -> dict[str, Any]:
    """Play a case in a process of its own, and return its row of the table."""
    with tempfile.TemporaryFile("w+") as answer:
        command = [sys.executable, "-m", "benchmarks.scale", "--play", name, str(folder)]
        with subprocess.Popen(command, stdout=answer) as process:
            peak = 0.0
            while process.poll() is None:
                peak = max(peak, memory(process.pid))
                time.sleep(0.25)
        if process.returncode:
            raise RuntimeError(f"{name} ended with {process.returncode}")
        answer.seek(0)
        return {"case": name, **json.loads(answer.read()), "peak GB": peak}


def main(names: list[str] | None = None) -> None:
    """Measure the named cases, or all; write the table with these and with those measured before."""
    folder = Path(tempfile.gettempdir()) / "fedcap-scale"
    folder.mkdir(exist_ok=True)
    rows = {row["case"]: row for row in known_rows()}
    for name in names or CASES:
        case = CASES[name]
        if case["method"] not in ("plain", "published"):
            experiment(case, folder).source.load()  # decode the file into the cache
        elif case["method"] == "plain":
            data_file(folder, case["clients"])
        rows[name] = measured(name, folder)
        report.progress(rows[name])
        write([rows[known] for known in CASES if known in rows])


def known_rows() -> list[dict[str, Any]]:
    """Return the rows of the table that was written last."""
    file = report.RESULTS / "scale.json"
    return json.loads(file.read_text())["rows"] if file.exists() else []


def write(rows: list[dict[str, Any]]) -> None:
    """Write the table, and say whether other programs used the machine meanwhile."""
    busy = os.getloadavg()[2]
    others = f"; other programs used the cores too, load average {busy:.0f}" if busy > 4 else ""
    about = " ".join((__doc__ or "").split("\n\n")[1].split())
    report.write("scale", "Cost of registered clients", rows, f"1 in each worker process{others}", about)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        print(json.dumps(play(CASES[sys.argv[2]], Path(sys.argv[3]))))
    else:
        main(sys.argv[1:] or None)
