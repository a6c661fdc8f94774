"""The demo of two minutes: the accuracy of FedAvg and FedCAP under attacks, on the embedded digits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedcap.errors import InputError, plural
from fedcap.experiments.grid import Cell, Grid
from fedcap.files import write_aside
from fedcap.report.page import build_report
from fedcap.report.panel import attack_title
from fedcap.report.plots import draw_demo
from fedcap.report.tables import DIVERGED_NOTE, Table
from fedcap.runs import Result
from fedcap.runs.outcome import CELLS, write_planned
from fedcap.simulation import Observer, WorkerPool

METHODS = ("local", "fedavg", "fedcap")
ATTACKS = ("none", "sign-flipping", "lie", "min-max", "ipm")
ACCURACIES = {
    "Local": "local",
    "FedAvg": "fedavg",
    "FedAvg fine-tuned": "fedavg_ft",
    "FedCAP": "fedcap",
}
"""The columns of accuracies, and their names in the JSON rows."""
COLUMNS = ("attack", *ACCURACIES, "malicious removed", "honest removed", "rounds to removal")
NOTE = (
    "Accuracy in percent on the honest clients' test samples, in the last round. Local: every client trains "
    "alone. FedAvg: one shared model. Fine-tuned: that model after a client trained it on its data. The last "
    "three columns are of FedCAP: malicious clients removed, honest clients wrongly removed, and the mean "
    "round in which malicious clients were removed."
)
HEADING = "# FedAvg and FedCAP under attacks"
PICTURE = "![Accuracy by attack, and the scores that the server computes for each client](accuracy.png)"

Results = Sequence[tuple[Cell, Result]]


def cells(seed: int = 0, rounds: int | None = None, malicious: float = 0.3) -> list[Cell]:
    """Return the runs of the demo: every method, without an attack and under each."""
    given: dict[str, Any] = {} if rounds is None else {"rounds": rounds}
    return Grid(methods=METHODS, attacks=ATTACKS, seed=seed, malicious=malicious, **given).cells()


def run(
    planned: Sequence[Cell], out: Path, pool: WorkerPool, observers: Sequence[Observer] = ()
) -> Iterator[tuple[Cell, Result]]:
    """Run the cells one after the other, each in its directory; a finished one is only read.

    The folder is that of a grid. Cells with other settings have other directories, so old ones stay.
    """
    try:
        (out / CELLS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write to {out}: {error.strerror}", code="cannot-write", field=str(out)
        ) from None
    write_planned(out, {_name(cell): [cell.place] for cell in planned})
    for cell in planned:
        yield cell, cell.experiment.run(out=out / CELLS / _name(cell), pool=pool, observers=observers)


def _name(cell: Cell) -> str:
    return f"{cell.method}-{cell.place['attack']}-{cell.name[:8]}"


def rows(results: Results) -> list[dict[str, Any]]:
    """Return a row for each attack: each method's accuracy, and the clients that FedCAP removed."""
    found = _by_place(results)
    return [_row(attack, *(found[method, attack] for method in METHODS)) for attack in ATTACKS]


def _row(attack: str, local: Result, fedavg: Result, fedcap: Result) -> dict[str, Any]:
    malicious = {client.id for client in fedcap.clients if client.malicious}
    return {
        "attack": attack,
        "local": local.tacc,
        "fedavg": fedavg.tacc_shared or 0.0,
        "fedavg_diverged": fedavg.diverged,
        "fedavg_ft": fedavg.tacc_personal,
        "fedcap": fedcap.tacc,
        "malicious": len(malicious),
        "malicious_removed": len(malicious & fedcap.removed.keys()),
        "honest_removed": len(fedcap.removed.keys() - malicious),
        "rounds_to_removal": fedcap.rounds_to_removal,
    }


def table(results: Results) -> Table:
    """Return the demo's table, a line for each attack."""
    lines = [
        [
            attack_title(row["attack"]),
            row["local"],
            f"{row['fedavg']:.1f} †" if row["fedavg_diverged"] else row["fedavg"],
            row["fedavg_ft"],
            row["fedcap"],
            f"{row['malicious_removed']} of {row['malicious']}" if row["malicious"] else None,
            row["honest_removed"],
            row["rounds_to_removal"],
        ]
        for row in rows(results)
    ]
    cell, result = results[0]
    malicious = max(row["malicious"] for row in rows(results))
    title = (
        f"Handwritten digits, {plural(len(result.clients), 'client')} with different data,"
        f" {malicious} of them malicious; {plural(result.rounds, 'round')}, seed {cell.experiment.seed}"
    )
    diverged = any(row["fedavg_diverged"] for row in rows(results))
    return Table(COLUMNS, lines, title, [NOTE, *[DIVERGED_NOTE] * diverged])


def save(results: Results, out: Path) -> None:
    """Write the table, its rows as JSON, and the picture into a directory."""
    every = rows(results)
    reports = {
        (cell.method, cell.place["attack"]): build_report(out / CELLS / _name(cell)) for cell, _ in results
    }
    write_aside(out / "report.md", "\n\n".join([HEADING, table(results).markdown(), PICTURE]) + "\n")
    write_aside(out / "table.json", json.dumps(every, indent=2))
    draw_demo(
        [attack_title(row["attack"]) for row in every],
        {title: [row[name] for row in every] for title, name in ACCURACIES.items()},
        reports["fedavg", "ipm"],
        reports["fedcap", "ipm"],
        reports["fedcap", "min-max"],
        out / "accuracy.png",
    )


def _by_place(results: Results) -> dict[tuple[str, str], Result]:
    return {(cell.method, cell.place["attack"]): result for cell, result in results}
