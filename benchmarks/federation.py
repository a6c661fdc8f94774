"""The seconds of a federated round compared with a simulated one, and the share that Flower takes.

Both play the same plan on the embedded digits: FedCAP without an attack. The federation is a rehearsal: a
server and its sites as processes on this machine, over TLS. A site's work is the time in which the simulation
trains one client. Flower's time is that of a federated round minus a site's work and the server's step: its
processes, its polling and the transmission.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import fedcap
from benchmarks.report import progress, write

CLIENTS = (3, 5)
ROUNDS = 6


def simulated(clients: int, samples: int, folder: Path) -> list[Any]:
    dataset = {"name": "digits", "clients": clients, "samples": samples}
    experiment = fedcap.Experiment(dataset=dataset, method="fedcap", rounds=ROUNDS, seed=0, workers=1)
    return list(experiment.run(out=folder / "simulated").history)


def federated(clients: int, folder: Path) -> list[Any]:
    flags = ["--clients", clients, "--malicious", 0, "--rounds", ROUNDS, "--out", folder / "federated"]
    subprocess.run([sys.executable, "-m", "fedcap", "federate", "rehearse", *map(str, flags)], check=True)
    return list(fedcap.read(folder / "federated" / "operator" / "run").rounds)


def typical(records: list[Any], part: str) -> float:
    """Return the median over the rounds after the first, in which newcomers send a request."""
    return median(getattr(record.seconds, part) for record in records[1:])


def compare(clients: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        federation = federated(clients, Path(name))
        simulation = simulated(clients, 1000 // clients, Path(name))
    site = typical(simulation, "train") / clients
    total, server = typical(federation, "total"), typical(federation, "server")
    flower = total - server - site
    return {
        "sites": clients,
        "simulated round, s": typical(simulation, "total"),
        "federated round, s": total,
        "a site's work, s": site,
        "the server's step, s": server,
        "Flower's, s": flower,
        "Flower's, %": 100 * flower / total,
    }


def main() -> None:
    rows = []
    for clients in CLIENTS:
        rows.append(compare(clients))
        progress(rows[-1])
    about = "FedCAP on digits, 13,706 weights, 5 epochs; the median of rounds 2 to 6."
    write("federation", "A federated round compared with a simulated one", rows, "one in each process", about)


if __name__ == "__main__":
    main()
