"""The two-minute tour: what attacks do to FedAvg on the embedded digits, and what FedCAP does about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedcap.report.figures import draw_demo
from fedcap.report.tables import DemoRow, DemoTable
from fedcap.simulation import Experiment
from fedcap.simulation.directory import write_aside
from fedcap.simulation.loop import Observer
from fedcap.simulation.record import Result
from fedcap.training import Pool

METHODS = ("local", "fedavg", "fedcap")
ATTACKS = ("none", "sign-flipping", "lie", "min-max", "ipm")


@dataclass(frozen=True)
class Cell:
    """One run of the demo."""

    method: str
    attack: str
    experiment: Experiment


def cells(seed: int = 0, rounds: int | None = None, malicious: float = 0.3) -> list[Cell]:
    """Return the runs of the demo: every method, without an attack and under each."""
    given = {} if rounds is None else {"rounds": rounds}
    return [
        Cell(
            method,
            attack,
            Experiment(method=method, attack=attack, malicious=malicious, seed=seed, **given),
        )
        for attack in ATTACKS
        for method in METHODS
    ]


def run(
    planned: Sequence[Cell], out: Path, pool: Pool, observers: Sequence[Observer] = ()
) -> Iterator[tuple[Cell, Result]]:
    """Run the cells one after the other, each in a directory of its own; what is there is not run again."""
    for cell in planned:
        where = out / "runs" / f"{cell.method}-{cell.attack}"
        yield cell, cell.experiment.run(out=where, pool=pool, observers=observers)


def table(results: Sequence[tuple[Cell, Result]]) -> DemoTable:
    """Return the demo's table."""
    by_attack: dict[str, dict[str, Result]] = {}
    for cell, result in results:
        by_attack.setdefault(cell.attack, {})[cell.method] = result
    rows = [
        DemoRow.of(attack, local=found["local"], fedavg=found["fedavg"], fedcap=found["fedcap"])
        for attack, found in by_attack.items()
    ]
    cell, result = results[0]
    return DemoTable(rows, len(result.clients), result.rounds, cell.experiment.seed)


def save(results: Sequence[tuple[Cell, Result]], out: Path) -> None:
    """Write the table and the picture into a directory."""
    made = table(results)
    write_aside(out / "report.md", made.markdown().encode())
    write_aside(out / "table.json", json.dumps([row.to_dict() for row in made.rows], indent=2).encode())
    found = {(cell.method, cell.attack): result for cell, result in results}
    threshold = next(
        cell.experiment.settings()["method"]["t_norm"] for cell, _ in results if cell.method == "fedcap"
    )
    draw_demo(
        made.rows,
        found["fedavg", "ipm"],
        found["fedcap", "ipm"],
        found["fedcap", "min-max"],
        threshold,
        out / "accuracy.png",
    )
