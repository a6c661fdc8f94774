"""`fedcap show`: what runs came to, finished or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcap.cli.output import AsJson, print_json, print_table

if TYPE_CHECKING:
    from fedcap.report.tables import Table
    from fedcap.runs import Run

CLIENTS_SHOWN = 40
"""How many clients of a run are listed."""


def show(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Directories of runs.")],
    as_json: AsJson = False,
) -> None:
    """Show what a run came to, or how far it is, and each of its clients; several runs as a table."""
    from fedcap.report.tables import clients_table, summary_table
    from fedcap.runs import read

    runs = [read(directory) for directory in directories]
    table = summary_table(runs)
    if as_json:
        print_json([_facts(run) | row for run, row in zip(runs, table.dicts(), strict=True)])
    elif len(runs) == 1:
        typer.echo(_summary(runs[0]))
        print_table(clients_table(runs[0], CLIENTS_SHOWN))
    else:
        print_table(_brief(table))
        for number, run in enumerate(runs, start=1):
            typer.echo(f"{number:>4}  {run.path}")


def _brief(table: Table) -> Table:
    """Return the table of several runs as it fits a terminal: a number for each, and fewer columns."""
    from fedcap.report.tables import Table

    columns = ("data set", "method", "attack", "seed", "rounds", "accuracy", "worst client")
    rows = []
    for number, row in enumerate(table.dicts(), start=1):
        removed, malicious = row["malicious removed"], row["malicious"]
        found = f"{removed} of {malicious}" if malicious and removed is not None else None
        cells = [row[column] for column in columns]
        if row["diverged"]:
            cells[columns.index("accuracy")] = f"{row['accuracy']:.1f} †"
        rows.append([str(number), *cells, found, row["honest removed"]])
    return Table(("run", *columns, "malicious removed", "honest removed"), rows, notes=table.notes)


def _summary(run: Run) -> str:
    """Return the summary of a run; of an unfinished one, how to go on too."""
    from fedcap.cli.summary import summary

    if run.result is None:
        again = f"federate server {run.path.parent}" if run.settings.federated else f"run --resume {run.path}"
        return f"{run}\n  continue   fedcap {again}"
    return summary(run.settings, run.result, run.path)


def _facts(run: Run) -> dict[str, Any]:
    """Return a run for JSON: where it is, its settings, and its result, null if it has not finished."""
    return {
        "directory": str(run.path),
        "finished": run.result is not None,
        "settings": run.settings.model_dump(),
        "result": None if run.result is None else json.loads(run.result.to_json()),
    }
