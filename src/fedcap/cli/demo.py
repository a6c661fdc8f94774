"""`fedcap demo`: a tour of two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcap.cli.common import AsJson, Quiet, Workers, echo, print_json, print_table, save
from fedcap.cli.report import REPORT


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the runs, the table, the picture and the page.")
    ] = Path("fedcap-demo"),
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds of each run. [default: 30]")] = None,
    workers: Workers = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Compare Local, FedAvg and FedCAP under attacks, in two minutes."""
    from fedcap.cli.progress import DemoProgress
    from fedcap.cli.report import report_on
    from fedcap.experiments import demo as tour
    from fedcap.report.pack import pack
    from fedcap.report.page import page
    from fedcap.runs.outcome import CELLS
    from fedcap.simulation import make_pool

    planned = tour.cells(seed, rounds)
    with make_pool(workers) as pool, DemoProgress(len(planned), quiet) as progress:
        results = []
        for cell, result in tour.run(planned, out, pool, [progress]):
            results.append((cell, result))
            progress.run_done()
    tour.save(results, out)
    save(report := out / REPORT, page(pack(report_on(out))))
    if as_json:
        print_json(tour.rows(results))
        return
    print_table(tour.table(results))
    echo(f"\nSaved: {out}/report.md, {out}/accuracy.png, and every run in {out}/{CELLS}")
    echo(f"All results as a page for the browser: {report}")
