"""`fedcap paper`: the paper's tables and figures, its figure beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcap.cli.app import App
from fedcap.cli.output import AsJson, print_json, print_table

if TYPE_CHECKING:
    from fedcap.experiments.paper.recorded import Recorded

app = App("Run the paper's tables and figures, and show its figures beside ours.")

Name = Annotated[str, typer.Argument(help="A table or a figure: see fedcap paper list.")]
Out = Annotated[Path, typer.Option(help="Where runs are kept.")]
Results = Annotated[Path, typer.Option(help="A folder of outcomes, small files that a repository can keep.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds of each run. [default: the data set's]", min=1)]
Dataset = Annotated[str | None, typer.Option(help="Only this data set.")]
Column = Annotated[str | None, typer.Option(help="Only this column, such as FedCAP.")]
Attack = Annotated[str | None, typer.Option(help="Only this attack, or none.")]

RUNS, RESULTS = Path("fedcap-paper"), Path("results")


@app.command("list")
def list_(
    out: Out = RUNS, results: Results = RESULTS, rounds: Rounds = None, as_json: AsJson = False
) -> None:
    """List the tables and figures, and how many of their cells have finished."""
    from fedcap.experiments.paper.items import items
    from fedcap.experiments.paper.recorded import progress
    from fedcap.records import Table

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
    """Show a table or a figure: ours, the paper's, the difference and its interval over seeds."""
    from fedcap.experiments.axes import seeds as parse_seeds
    from fedcap.experiments.paper.items import item as find
    from fedcap.experiments.paper.pictures import draw
    from fedcap.experiments.paper.show import compare, panels, table

    item = find(name).only(dataset, column, _resolved(attack))
    found = compare(item, _recorded(out, results), rounds, parse_seeds(seeds) if seeds else None)
    drawn = draw(item, found, figures) if figures is not None else []
    if as_json:
        entries = [each.facts() for each in found]
        print_json(
            {"name": item.name, "title": item.title, "entries": entries, "figures": [*map(str, drawn)]}
        )
        return
    typer.echo(item.title)
    shown = panels(found)
    for heading, inside in shown.items():
        print_table(table(heading, inside))
    absent = [heading for heading in item.panels if heading not in shown]
    if absent:
        typer.echo(f"No finished runs of {', '.join(absent)}: fedcap paper run {item.name} --dataset NAME")
    for path in drawn:
        typer.echo(f"  {path}")
    if figures is not None and not drawn:
        typer.echo("No figure drawn: " + ("no run has finished" if item.drawn else "this is a table"))


def _recorded(out: Path, results: Path) -> Recorded:
    """Return all outcomes that are here."""
    from fedcap.experiments.paper.recorded import Recorded
    from fedcap.experiments.store import CellStore

    return Recorded(CellStore(out, results).outcomes().values())


def _resolved(attack: str | None) -> str | None:
    """Return an attack's registered name: SF is sign-flipping."""
    from fedcap import attacks

    return attack if attack is None or attack.lower() == "none" else attacks.registry.resolve(attack)
