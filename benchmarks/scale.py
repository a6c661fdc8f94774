"""What a run costs as more clients are registered: start-up, seconds a round, memory and disk.

Each case is a process of its own. K clients have 16 samples each, of 48 bytes and 10 classes, in a file that
fedcap has decoded once before; the network has 52,010 weights, and a participant trains five epochs in
batches of ten. Under IPM 30 % of the clients are malicious. A sample of 100 clients is tested in the last
round, which is not among the rounds that are timed; neither is the first. Start-up is the time from
`Experiment` to the first round, without Python's imports. Seconds are wall-clock time and the processor time
of all processes. Memory is the proportional set size (PSS) of all processes together, sampled twice a
second, files that are mapped included.

The plain loop is FedAvg as most projects write it: a list of clients, each with its data sets and loaders.
Flower is FedAvg in the simulation of Flower 1.41 on Ray; each node maps the file of the samples, and its
start-up has the start of Ray. Neither tests models. Logistic regression is a case that others publish: FedAvg
with 1,000 clients, 10 a round, 100 rounds. FLUTE publishes 3:20 min and Flower 1.0 30:14 min for it, on their
machines and on MNIST. Here the images are those of handwritten62, which has 8,608 of them, so a client has 8
samples.

`python -m benchmarks.scale CASE …` measures only some cases; their names are in the first column. A case is
written to the table when it has ended, and `python -m benchmarks.scale --missing` measures those that the
table does not have.
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
from benchmarks import flower, report
from fedcap import models
from fedcap.simulation import Simulation

SAMPLES, FEATURES, CLASSES = 16, 48, 10
TESTED = 100
ROUNDS = 10
TRAINING = {"lr": 0.05, "epochs": 5, "batch_size": 10}

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
PUBLISHED = {"clients": 1_000, "part": 10, "rounds": 100}

CASES: dict[str, dict[str, Any]] = {
    f"{method}, {clients:,} clients, {part} a round": {"method": method, "clients": clients, "part": part}
    for method in ("fedavg", "fedcap")
    for part in (20, 100)
    for clients in SIZES
}
CASES["fedcap, 200 clients, 100 a round"] = {"method": "fedcap", "clients": 200, "part": 100}
CASES["fedcap, 20,000 clients, 20 a round, 4 rounds"] = {
    "method": "fedcap",
    "clients": 20_000,
    "part": 20,
    "rounds": 4,
}
CASES |= {
    f"{name}, {clients:,} clients, {part} a round": {"method": method, "clients": clients, "part": part}
    for name, method, sizes in (
        ("plain loop", "plain", (100, 1_000, 10_000, 100_000)),
        ("Flower", "flower", (100, 1_000, 10_000, 100_000)),
    )
    for clients in sizes
    for part in (20, 100)
    if part == 20 or clients == 1_000
}
CASES |= {
    f"logistic regression, {name}": {"method": method, "published": True, **PUBLISHED}
    for name, method in (("fedcap", "fedavg"), ("plain loop", "plain"), ("Flower", "flower"))
}


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
    if case.get("published"):
        return fedcap.Experiment(
            dataset={"name": "handwritten62", "partition": "iid", "clients": case["clients"], "samples": 8},
            model="benchmarks.scale:logistic",
            method="fedavg",
            participation=case["part"] / case["clients"],
            rounds=case["rounds"],
            eval_every=case["rounds"],
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


def processes(root: int) -> list[int]:
    """Return the ids of a process and of all that it has started, directly or not."""
    found = [root]
    for process in found:  # the list grows meanwhile
        try:
            tasks = list(Path(f"/proc/{process}/task").iterdir())
            found += [int(child) for task in tasks for child in (task / "children").read_text().split()]
        except OSError:  # the process has ended
            continue
    return found


def processor_seconds() -> float:
    """Return the processor time of all processes so far."""
    total = 0.0
    for process in processes(os.getpid()):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


class Clock:
    """An observer that notes when the run started, and the seconds of its rounds."""

    def __init__(self) -> None:
        self.at = [(time.perf_counter(), processor_seconds())]

    def started(self, simulation: Simulation) -> None:
        self.note()

    def round_done(self, simulation: Simulation, record: object) -> None:
        self.note()

    def finished(self, result: object) -> None:
        pass

    def note(self) -> None:
        """Note the time."""
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
    if case["method"] in ("plain", "flower"):
        (plain_loop if case["method"] == "plain" else in_flower)(case, folder, clock)
        return clock.row() | {"disk MB": 0.0}
    with tempfile.TemporaryDirectory(dir=folder) as out:
        experiment(case, folder).run(out=Path(out) / "run", observers=[clock])
        disk = sum(path.stat().st_size for path in Path(out).rglob("*") if path.is_file())
    return clock.row() | {"disk MB": disk / 1e6}


def arrays(case: dict[str, Any], folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples of a case and their labels, mapped from files."""
    x, y = (folder / f"scale-{case['clients']}-{bool(case.get('published'))}-{part}.npy" for part in "xy")
    if not y.exists():
        if case.get("published"):
            samples = experiment(case, folder).source.load().samples
            count = 8 * case["clients"]
            found = {"x": samples.x[:count].float().numpy(), "y": samples.y[:count].numpy()}
        else:
            with np.load(data_file(folder, case["clients"])) as file:
                found = {"x": file["x"], "y": file["y"]}
        np.save(x, found["x"])
        np.save(y, found["y"])
    return np.load(x, mmap_mode="r"), np.load(y, mmap_mode="r")


def network(case: dict[str, Any]) -> nn.Module:
    """Return a new network for a case."""
    return logistic() if case.get("published") else models.builder("mlp", (FEATURES,), CLASSES)()


def parts(x: np.ndarray, y: np.ndarray) -> tuple[TensorDataset, TensorDataset]:
    """Return the data sets of one client: three quarters are for training."""
    inputs, labels = torch.from_numpy(np.array(x)), torch.from_numpy(np.array(y)).long()
    inputs = inputs / 127.5 - 1 if inputs.dtype == torch.uint8 else inputs
    cut = len(labels) * 3 // 4
    return TensorDataset(inputs[:cut], labels[:cut]), TensorDataset(inputs[cut:], labels[cut:])


def fit(model: nn.Module, dataset: TensorDataset, published: bool) -> dict[str, torch.Tensor]:
    """Train a model on one client's data, and return its weights."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.03 if published else TRAINING["lr"])
    for _ in range(1 if published else int(TRAINING["epochs"])):
        for inputs, labels in DataLoader(dataset, batch_size=10, shuffle=True):
            optimiser.zero_grad()
            functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()
    return model.state_dict()


def plain_loop(case: dict[str, Any], folder: Path, clock: Clock) -> None:
    """Play FedAvg as a list of client objects."""
    (x, y), clients, published = arrays(case, folder), case["clients"], bool(case.get("published"))
    size = len(y) // clients
    data = [
        parts(x[start : start + size], y[start : start + size]) for start in range(0, clients * size, size)
    ]
    model = network(case)
    clock.started(None)  # type: ignore[arg-type]
    for _ in range(case.get("rounds", ROUNDS)):
        chosen = torch.randperm(clients)[: case["part"]].tolist()
        states = [fit(copy.deepcopy(model), data[client][0], published) for client in chosen]
        mean = {key: torch.stack([state[key] for state in states]).mean(dim=0) for key in states[0]}
        model.load_state_dict(mean)
        clock.round_done(None, None)  # type: ignore[arg-type]


def in_flower(case: dict[str, Any], folder: Path, clock: Clock) -> None:
    """Play FedAvg in Flower's simulation."""

    def train(client: int, received: dict[str, torch.Tensor], context: object) -> dict[str, torch.Tensor]:
        x, y = arrays(case, folder)
        size = len(y) // case["clients"]
        model = network(case)
        model.load_state_dict(received)
        rows = slice(client * size, (client + 1) * size)
        return fit(model, parts(x[rows], y[rows])[0], bool(case.get("published")))

    arrays(case, folder)
    rounds = case.get("rounds", ROUNDS)
    state = network(case).state_dict()
    flower.fedavg(train, state, case["clients"], case["part"], rounds, clock.note)


def memory(process: int) -> float:
    """Return the gigabytes of a process and of all that it has started."""
    total = 0
    for each in processes(process):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:  # the process has ended
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 2**20


def measured(name: str, folder: Path) -> dict[str, Any]:
    """Play a case in a process of its own, and return its row of the table."""
    with tempfile.TemporaryFile("w+") as answer:
        command = [sys.executable, "-m", "benchmarks.scale", "--play", name, str(folder)]
        with subprocess.Popen(command, stdout=answer) as process:
            peak = 0.0
            while process.poll() is None:
                peak = max(peak, memory(process.pid))
                time.sleep(0.5)
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
        if case["method"] == "flower" and not flower.installed():
            print(f"{name}: flwr[simulation] is not installed", flush=True)
            continue
        if case["method"] in ("plain", "flower"):
            arrays(case, folder)
        else:
            experiment(case, folder).source.load()  # decode the file into the cache
        try:
            rows[name] = measured(name, folder)
        except RuntimeError as error:
            print(error, flush=True)
            continue
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
    about = "\n\n".join(" ".join(part.split()) for part in (__doc__ or "").split("\n\n")[1:3])
    report.write("scale", "Cost of registered clients", rows, f"1 in each worker process{others}", about)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        print(json.dumps(play(CASES[sys.argv[2]], Path(sys.argv[3]))))
    elif sys.argv[1:] == ["--missing"]:
        known = {row["case"] for row in known_rows()}
        main([name for name in CASES if name not in known])
    else:
        main(sys.argv[1:] or None)
