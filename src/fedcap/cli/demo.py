"""`fedcap demo`: the two-minute tour."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcap.cli.output import AsJson, Quiet, print_json, print_table, save
from fedcap.cli.report import REPORT
from fedcap.cli.settings import Workers


def demo(
    out: Annotated[Path, typer.Option(help="Where to save the table, the pictures and the page.")] = Path(
        "fedcap-demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    rounds: Annotated[int | None, typer.Option(help="Rounds of each run. [default: 30]")] = None,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Take the two-minute tour: what attacks do to FedAvg, and what FedCAP does about it."""
    from fedcap.cli.progress import GridProgress
    from fedcap.cli.stories import story_for
    from fedcap.experiments import demo as tour
    from fedcap.report.pack import pack
    from fedcap.report.page import page
    from fedcap.runs.outcome import CELLS
    from fedcap.simulation import make_pool

    planned = tour.cells(seed, rounds)
    with make_pool(workers) as crew, GridProgress(len(planned), quiet) as progress:
        results = []
        for cell, result in tour.run(planned, out, crew, [progress]):
            results.append((cell, result))
            progress.cell_done()
    tour.save(results, out)
    save(report := out / REPORT, page(pack(story_for(out))))
    if as_json:
        print_json(tour.rows(results))
        return
    print_table(tour.table(results))
    typer.echo(f"\nSaved: {out}/report.md, {out}/accuracy.png, and every run in {out}/{CELLS}")
    typer.echo(f"The whole story, a page for your browser: {report}")
