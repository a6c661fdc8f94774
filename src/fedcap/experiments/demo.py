"""The two-minute tour: what attacks do to FedAvg on the embedded digits, and what FedCAP does about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from fedcap.errors import plural
from fedcap.experiments.cells import Cell
from fedcap.experiments.grid import Grid
from fedcap.files import write_aside
from fedcap.report.figures import draw_demo
from fedcap.report.tables import DIVERGED_NOTE, Table
from fedcap.runs import Result
from fedcap.runs.outcome import CELLS
from fedcap.simulation import Observer, WorkerPool

METHODS = ("local", "fedavg", "fedcap")
ATTACKS = ("none", "sign-flipping", "lie", "min-max", "ipm")
COLUMNS = (
    "attack",
    "Local",
    "FedAvg",
    "FedAvg fine-tuned",
    "FedCAP",
    "attackers removed",
    "benign removed",
    "rounds to removal",
)
NOTE = (
    "Accuracy in percent on the honest clients' own test samples, in the last round. Local: every client "
    "alone. FedAvg: one shared model. Fine-tuned: that model after a client trained it on its own data. "
    "The last three columns are FedCAP's: attackers found, honest clients wrongly removed, and the round in "
    "which attackers were removed, on average."
)
HEADING = "# What attacks do to FedAvg, and what FedCAP does about it"
PICTURE = "![Accuracy by attack, and what the server sees of each client](accuracy.png)"

Results = Sequence[tuple[Cell, Result]]


def cells(seed: int = 0, rounds: int | None = None, malicious: float = 0.3) -> list[Cell]:
    """Return the runs of the demo: every method, without an attack and under each."""
    given: dict[str, Any] = {} if rounds is None else {"rounds": rounds}
    return Grid(methods=METHODS, attacks=ATTACKS, seed=seed, malicious=malicious, **given).cells()


def run(
    planned: Sequence[Cell], out: Path, crew: WorkerPool, observers: Sequence[Observer] = ()
) -> Iterator[tuple[Cell, Result]]:
    """Run the cells one after the other, each in a directory of its own; finished ones are only read.

    Cells with other settings have other directories, so that old ones stay. They lie as those of a grid do.
    """
    for cell in planned:
        where = out / CELLS / f"{cell.method}-{cell.place['attack']}-{cell.name[:8]}"
        yield cell, cell.experiment.run(out=where, pool=crew, observers=observers)


@dataclass(frozen=True)
class DemoRow:
    """One attack: how accurate each method stays, and what FedCAP does about the attackers."""

    attack: str
    local: float
    fedavg: float
    fedavg_diverged: bool
    fedavg_ft: float
    fedcap: float
    attackers: int
    attackers_removed: int
    benign_removed: int
    rounds_to_removal: float | None

    @classmethod
    def of(cls, attack: str, local: Result, fedavg: Result, fedcap: Result) -> Self:
        """Read the row off the three runs."""
        attackers = {client.id for client in fedcap.clients if client.malicious}
        return cls(
            attack=attack,
            local=local.tacc,
            fedavg=fedavg.tacc_shared or 0.0,
            fedavg_diverged=fedavg.diverged,
            fedavg_ft=fedavg.tacc_personal,
            fedcap=fedcap.tacc,
            attackers=len(attackers),
            attackers_removed=len(attackers & fedcap.removed.keys()),
            benign_removed=len(fedcap.removed.keys() - attackers),
            rounds_to_removal=fedcap.rounds_to_removal,
        )

    @property
    def label(self) -> str:
        """The attack, as people call it."""
        return "no attack" if self.attack == "none" else self.attack

    def values(self) -> list[str | int | float | None]:
        """Return what the table shows of it, a value per column."""
        return [
            self.label,
            self.local,
            f"{self.fedavg:.1f} †" if self.fedavg_diverged else self.fedavg,
            self.fedavg_ft,
            self.fedcap,
            f"{self.attackers_removed} of {self.attackers}" if self.attackers else None,
            self.benign_removed,
            self.rounds_to_removal,
        ]


@dataclass(frozen=True)
class DemoTable:
    """The demo's rows, one per attack, and the table of them."""

    rows: Sequence[DemoRow]
    table: Table

    @classmethod
    def of(cls, results: Results) -> Self:
        """Read the rows off the runs."""
        found = {(cell.method, cell.place["attack"]): result for cell, result in results}
        rows = [
            DemoRow.of(attack, **{method: found[method, attack] for method in METHODS}) for attack in ATTACKS
        ]
        cell, result = results[0]
        title = (
            f"Handwritten digits over {plural(len(result.clients), 'client')} whose data differ,"
            f" {max(row.attackers for row in rows)} of them hostile;"
            f" {plural(result.rounds, 'round')}, seed {cell.experiment.seed}"
        )
        diverged = any(row.fedavg_diverged for row in rows)
        values = [row.values() for row in rows]
        return cls(rows, Table(COLUMNS, values, title, [NOTE, *[DIVERGED_NOTE] * diverged]))

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows as plain values."""
        return [asdict(row) for row in self.rows]

    def accuracies(self) -> Mapping[str, list[float]]:
        """Return each method's accuracies, one per attack."""
        return {
            "Local": [row.local for row in self.rows],
            "FedAvg": [row.fedavg for row in self.rows],
            "FedAvg fine-tuned": [row.fedavg_ft for row in self.rows],
            "FedCAP": [row.fedcap for row in self.rows],
        }


def save(made: DemoTable, results: Results, out: Path) -> None:
    """Write the table and the picture into a directory."""
    write_aside(out / "report.md", "\n\n".join([HEADING, made.table.markdown(), PICTURE]) + "\n")
    write_aside(out / "table.json", json.dumps(made.dicts(), indent=2))
    found = {(cell.method, cell.place["attack"]): result for cell, result in results}
    draw_demo(
        [row.label for row in made.rows],
        made.accuracies(),
        found["fedavg", "ipm"],
        found["fedcap", "ipm"],
        found["fedcap", "min-max"],
        out / "accuracy.png",
    )
