"""`fedcap show`: the results of runs, finished or not, and the summary that `fedcap run` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcap.cli.common import AsJson, echo, print_json, print_table
from fedcap.errors import plural

if TYPE_CHECKING:
    from fedcap.report.tables import Table
    from fedcap.runs import Metrics, Result, Run, Settings

CLIENTS_SHOWN = 40
"""How many clients of a run are listed."""
REMOVED_SHOWN = 3
"""How many honest clients that were removed are named."""


def show(
    directories: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Directories of runs.")],
    as_json: AsJson = False,
) -> None:
    """Show the results of runs.

    One run is shown with each of its clients, several as a table. Runs need not be finished.
    """
    from fedcap.report.tables import clients_table, measures_table, summary_table
    from fedcap.runs import read

    runs = [read(directory) for directory in directories]
    table = summary_table(runs)
    if as_json:
        print_json([_facts(run) | row for run, row in zip(runs, table.dicts(), strict=True)])
    elif len(runs) == 1:
        echo(_summary(runs[0]))
        print_table(clients_table(runs[0], CLIENTS_SHOWN))
        if (measures := measures_table(runs[0], CLIENTS_SHOWN)) is not None:
            print_table(measures)
    else:
        print_table(_brief(table))
        for number, run in enumerate(runs, start=1):
            echo(f"{number:>4}  {run.path}")


def _brief(table: Table) -> Table:
    """Return the table of several runs with fewer columns, and a number for each run."""
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
    """Return the summary of a run; of an unfinished one, how to continue it too."""
    if run.result is None:
        again = f"federate serve {run.path.parent}" if run.settings.federated else f"run --resume {run.path}"
        return f"{run}\n  continue   fedcap {again}"
    return summary(run.settings, run.result, run.path)


def _facts(run: Run) -> dict[str, Any]:
    """Return a run for JSON: its directory, settings, and result, null if it has not finished."""
    return {
        "directory": str(run.path),
        "finished": run.result is not None,
        "settings": run.settings.model_dump(),
        "result": None if run.result is None else json.loads(run.result.to_json()),
    }


def summary(settings: Settings, result: Result, path: Path) -> str:
    """Return what ran, the clients' accuracy, the removed clients, and where the records are."""
    from fedcap.runs import absent_attack, refusals, still_rising
    from fedcap.runs.result import DIVERGED, accuracy_line

    malicious = [client.id for client in result.clients if client.malicious]
    attack = (
        f"{settings.attack.name}, {len(malicious)} of {plural(len(result.clients), result.noun)} malicious"
    )
    if not malicious:
        attack = "federation" if settings.federated else "no attack"
    figures = (result.tacc, result.tacc_shared, result.tacc_personal, result.tacc_worst_client)
    lines = [
        f"{settings.dataset_name} · {settings.method.name} · {attack}"
        f" · seed {settings.seed} · {plural(result.rounds, 'round')} in {result.seconds:.1f} s",
        f"  accuracy   {accuracy_line(*figures)}",
    ]
    if result.metrics is not None:
        lines.append(f"  measures   {_measures(result.metrics)}")
    if share := (settings.model_extra or {}).get("holdout"):
        lines.append(
            f"  held out   measured on {share:g} of the training samples; test samples were not used"
        )
    if result.stopped is not None:
        lines.append(f"  stopped    {result.stopped}")
    elif rising := still_rising(result.history):
        lines.append(f"  rising     {rising}")
    if settings.attack.name != "none" and not malicious:
        named = "clients" in settings.attack.options
        note = absent_attack(settings.attack.name, settings.malicious, len(result.clients), named)
        lines.append(f"  note       {note}")
    if result.diverged:
        lines.append(f"  diverged   {DIVERGED}")
    if result.fpr is not None:
        lines.append(f"  detection  {_detection(result, malicious, settings.benign)}")
    honest = [client for client in result.removed if client not in malicious]
    if honest and result.stopped is None:
        lines.append(f"  removed    {'' if settings.federated else 'honest: '}{_removals(result, honest)}")
    lines += [f"  refused    {line}" for line in refusals(result.history, malicious, settings.benign)]
    lines.append(f"  records    {path}")
    return "\n".join(lines)


def _measures(metrics: Metrics) -> str:
    """Return loss and macro-F1 in a line, and what else was recorded; a dash stands for no finite number."""
    readings = {"shared": metrics.shared, "personal": metrics.personal}
    found = {name: measures for name, measures in readings.items() if measures is not None}

    def of(name: str, form: str) -> str:
        return ", ".join(f"{reading} {_number(getattr(it, name), form)}" for reading, it in found.items())

    lines = [f"loss {of('loss', '.3f')}; macro-F1 {of('macro_f1', '.1f')} %"]
    if metrics.personal.calibration_error is not None:
        lines += [
            f"balanced accuracy {of('balanced_accuracy', '.1f')} %; AUC {of('auc', '.1f')} %",
            f"calibration error {of('calibration_error', '.1f')} %",
        ]
    return f"\n{' ' * 13}".join(lines)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _detection(result: Result, malicious: list[str], others: str) -> str:
    from fedcap.runs import always_refused

    caught = sum(client in result.removed for client in malicious)
    wrong = len(result.removed) - caught
    average = result.rounds_to_removal
    when = "" if average is None else f", on average in round {average:.1f}"
    found = f"{caught} of {plural(len(malicious), 'malicious client')} removed{when}; " if malicious else ""
    if malicious and always_refused(result.history, malicious) == set(malicious):
        found = ""  # none of their updates was inspected: the line on refused updates says so
    return f"{found}{plural(wrong, others) if wrong else f'no {others}s'} removed"


def _removals(result: Result, clients: list[str]) -> str:
    """Return when and why each of these clients was removed, for the first few of them."""
    first = clients[:REMOVED_SHOWN]
    named = [f"{k} in round {result.removed[k].round} ({result.removed[k].reason})" for k in first]
    more = f" and {len(clients) - REMOVED_SHOWN} more" if len(clients) > REMOVED_SHOWN else ""
    return f"{', '.join(named)}{more}"
