"""`fedcap paper`: the paper's tables and figures, its figure beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcap.cli import paper_pages
from fedcap.cli.app import App
from fedcap.cli.engines import Address, DryRun, EngineName, Jobs, Retry
from fedcap.cli.errors import FAILED
from fedcap.cli.output import AsJson, Quiet, print_json, print_table
from fedcap.cli.paper_pages import RESULTS, RUNS, Out, Results
from fedcap.errors import InputError, plural

if TYPE_CHECKING:
    from fedcap.experiments.paper.entry import Item
    from fedcap.experiments.paper.recorded import Recorded

app = App("Run the paper's tables and figures, and show its figures beside ours.")

Name = Annotated[str, typer.Argument(help="A table or a figure: see fedcap paper list.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds of each run. [default: the data set's]", min=1)]
Dataset = Annotated[str | None, typer.Option(help="Only this data set.")]
Column = Annotated[str | None, typer.Option(help="Only this column, such as FedCAP.")]
Attack = Annotated[str | None, typer.Option(help="Only this attack, or none.")]

FIT = 7
"""How many columns of figures with their intervals fit a terminal."""


@app.command("list")
def list_(
    out: Out = RUNS, results: Results = RESULTS, rounds: Rounds = None, as_json: AsJson = False
) -> None:
    """List the tables and figures, and what has finished."""
    from fedcap.experiments.paper.items import items
    from fedcap.experiments.paper.recorded import progress
    from fedcap.report.tables import Table

    recorded = _recorded(out, results)
    datasets = list(dict.fromkeys(dataset for item in items().values() for dataset in item.datasets))
    found = {
        item.name: {dataset: progress(item.only(dataset), recorded, rounds) for dataset in item.datasets}
        for item in items().values()
    }
    if as_json:
        print_json(
            [
                {
                    "name": item.name,
                    "title": item.title,
                    "cells": {
                        name: {"finished": done, "of": whole}
                        for name, (done, whole) in found[item.name].items()
                    },
                }
                for item in items().values()
            ]
        )
        return
    rows = [
        [
            item.name,
            *(
                "{}/{}".format(*found[item.name][name]) if name in found[item.name] else ""
                for name in datasets
            ),
        ]
        for item in items().values()
    ]
    print_table(Table(("", *datasets), rows))
    for item in items().values():
        typer.echo(f"  {item.name:<16} {item.title}")
    typer.echo(f"Cells finished with at least one seed, of those planned; looked in {out} and {results}.")


@app.command()
def run(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Tables or figures.")],
    dataset: Dataset = None,
    column: Column = None,
    attack: Attack = None,
    seeds: Annotated[str, typer.Option(help="Seeds: 0-2,7.")] = "0",
    rounds: Rounds = None,
    out: Out = RUNS,
    results: Annotated[
        Path | None,
        typer.Option(help="Write each outcome into this folder too, and count those there as done."),
    ] = None,
    engine: EngineName = "local",
    address: Address = None,
    jobs: Jobs = None,
    retry: Retry = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run what has not finished of tables and figures.

    The same command goes on where it was interrupted. Tables have runs in common, which are played once.
    """
    from fedcap.cli.compare import play_cells, tell_failures
    from fedcap.cli.plan import print_grid_plan
    from fedcap.experiments.engine import make_engine
    from fedcap.experiments.grid import parse_seeds
    from fedcap.experiments.paper.items import item as find
    from fedcap.experiments.paper.recorded import cells as cells_of
    from fedcap.experiments.store import CellStore, GridStatus, save_results

    chosen = [_here(find(name), dataset).only(None, column, _resolved(attack)) for name in names]
    cells = cells_of([entry for item in chosen for entry in item.entries], parse_seeds(seeds), rounds)
    store = CellStore(out, results)
    if dry_run:
        print_grid_plan(GridStatus.of(cells, store), retry, as_json)
        return
    plan = play_cells(cells, store, make_engine(engine, jobs, address), retry, quiet)
    if results is not None:
        save_results(plan.done.values(), results)
    if as_json:
        failed = [{"place": dict(failure.place), "why": failure.why} for failure in plan.failed.values()]
        print_json({"directory": str(out), "runs": len(plan.runs), "done": len(plan.done), "failed": failed})
    else:
        typer.echo(f"{len(plan.done)} of {plural(len(plan.runs), 'run')} done, in {out}")
        for name in names:
            typer.echo(
                f"  fedcap paper show {name} --out {out}" + (f" --results {results}" if results else "")
            )
    if plan.failed:
        tell_failures(plan, out)
        raise typer.Exit(FAILED)


@app.command()
def show(
    name: Name,
    dataset: Dataset = None,
    column: Column = None,
    attack: Attack = None,
    seeds: Annotated[str | None, typer.Option(help="Only these seeds: 0-2,7. [default: all]")] = None,
    rounds: Rounds = None,
    out: Out = RUNS,
    results: Results = RESULTS,
    figures: Annotated[
        Path | None, typer.Option(help="Draw the figures into this folder, as PNG, PDF and SVG.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show ours beside the paper's figures.

    Each cell has our mean over seeds and its interval, the paper's figure, and the difference. It needs the
    outcomes of finished runs, and no data.
    """
    from fedcap.experiments.grid import parse_seeds
    from fedcap.experiments.paper.items import item as find
    from fedcap.experiments.paper.pictures import pictures
    from fedcap.experiments.paper.show import compare, panels, table

    item = find(name).only(dataset, column, _resolved(attack))
    found = compare(item, _recorded(out, results), rounds, parse_seeds(seeds) if seeds else None)
    drawn = []
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        drawn = [path for name, draw in pictures(item, found).items() for path in draw(figures / name)]
    if as_json:
        entries = [each.facts() for each in found]
        print_json(
            {"name": item.name, "title": item.title, "entries": entries, "figures": [*map(str, drawn)]}
        )
        return
    typer.echo("\n".join(filter(None, (item.title, item.note))))
    shown = panels(found)
    for heading, inside in shown.items():
        print_table(table(heading, inside, most=FIT))
    absent = [heading for heading in item.panels if heading not in shown]
    if absent:
        typer.echo(f"No finished runs of {', '.join(absent)}: fedcap paper run {item.name}")
    for path in drawn:
        typer.echo(f"  {path}")
    if figures is not None and not drawn:
        typer.echo("No figure drawn: " + ("no run has finished" if item.drawn else "this is a table"))


def _here(item: Item, dataset: str | None) -> Item:
    """Return the item with the data sets that are here; one that is not is told, or stood in for."""
    from dataclasses import replace

    from fedcap.data import make
    from fedcap.experiments.paper.setups import STAND_IN

    if dataset is not None:
        (dataset,) = item.only(dataset).datasets
    absent = [name for name in item.datasets if make(name).files() == []]
    kept = []
    for name in [dataset] if dataset else item.datasets:
        stand_in = STAND_IN.get(name)
        if name not in absent:
            kept.append(name)
        elif stand_in in item.datasets and stand_in not in absent:
            typer.echo(f"fedcap: {name} is not here: {stand_in} stands in, under its own name", err=True)
            kept.append(stand_in)
        elif dataset is not None or len(item.datasets) == 1:
            raise make(name).absent()
        else:
            typer.echo(f"fedcap: leaving out {name}, which is not here (see fedcap data get)", err=True)
    spare = {STAND_IN[name] for name in STAND_IN if name in kept}  # where the data set itself is here
    wanted = [name for name in kept if name not in spare or name == dataset]
    if not wanted:
        raise InputError(f"no data of {item.name} is here: fedcap data list shows what is, data get fetches")
    return replace(item, entries=[entry for entry in item.entries if entry.dataset in wanted])


def _recorded(out: Path, results: Path) -> Recorded:
    """Return all outcomes that are here."""
    from fedcap.experiments.paper.recorded import Recorded
    from fedcap.experiments.store import CellStore

    return Recorded(CellStore(out, results).outcomes().values())


def _resolved(attack: str | None) -> str | None:
    """Return an attack's registered name: SF is sign-flipping."""
    from fedcap import attacks

    return attack if attack is None or attack.lower() == "none" else attacks.registry.resolve(attack)


app.command()(paper_pages.keep)
app.command()(paper_pages.write)
