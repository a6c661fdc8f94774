"""`fedcap paper keep`, `write` and `pack`: what a repository keeps of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcap.cli.output import AsJson, print_json
from fedcap.errors import InputError, plural

RUNS, RESULTS = Path("fedcap-paper"), Path("results")
Out = Annotated[Path, typer.Option(help="Where runs are kept.")]
Results = Annotated[Path, typer.Option(help="A folder of outcomes, small files that a repository can keep.")]


def keep(out: Out = RUNS, results: Results = RESULTS, as_json: AsJson = False) -> None:
    """Keep the outcomes of finished runs as small files.

    Those of any table or figure among the runs in --out are written into --results.
    """
    from fedcap.experiments.paper.items import items
    from fedcap.experiments.paper.recorded import Recorded, planned, save_results
    from fedcap.experiments.store import CellStore

    recorded = Recorded(CellStore(out).outcomes().values())
    entries = planned(entry for item in items().values() for entry in item.entries).values()
    finished = [outcome for entry in entries for outcome in recorded.of(entry).values()]
    written = save_results(finished, results)
    if as_json:
        print_json({"finished": len(finished), "written": written, "results": str(results)})
    else:
        typer.echo(f"{plural(len(finished), 'finished run')} in {out}, {written} new in {results}")


def write(
    docs: Annotated[Path, typer.Option(help="Where to write the pages.")] = Path("docs"),
    results: Results = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Write RESULTS.md, REPRODUCING.md and their figures.

    All that is in them is computed from the outcomes in --results.
    """
    from fedcap.experiments.paper.writing import write_pages

    written = write_pages(results, docs)
    if as_json:
        print_json([str(path) for path in written])
    else:
        typer.echo(f"Written: {', '.join(map(str, written))}")


def pack(
    grid: Annotated[Path, typer.Argument(metavar="GRID.toml", help="A grid, as fedcap compare takes it.")],
    to: Annotated[Path, typer.Option("--to", "-o", help="The file to write.")],
    out: Annotated[Path, typer.Option(help="Where the grid's runs are kept.")] = Path("fedcap-grid"),
    clients: Annotated[bool, typer.Option(help="Keep what became of each client.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put the outcomes of a grid into one small file.

    Those that the file has already stay in it, unless the grid has them no longer, or they would be played
    again: by other code, or on other data. If it has clients, they stay too.
    """
    from fedcap.experiments import packing
    from fedcap.experiments.grid import Grid
    from fedcap.experiments.plan import Plan
    from fedcap.experiments.store import CellStore

    before = [outcome for _, outcome in packing.unpack(to)] if to.exists() else []
    plan = Plan.of(Grid.read(grid, {}, {}).cells(), CellStore(out, known=to))
    if not plan.done:
        raise InputError(f"no run of {grid} has finished in {out}: fedcap compare {grid} --out {out}")
    packing.pack(plan.found, to, clients or any(outcome.clients for outcome in before))
    kept = {outcome.digest for outcome in plan.done.values()}
    dropped = sum(outcome.digest not in kept for outcome in before)
    if as_json:
        print_json({"file": str(to), "runs": len(plan.runs), "done": len(plan.done), "dropped": dropped})
    else:
        size = f"{to.stat().st_size / 1e3:,.0f} kB"
        typer.echo(f"{to}: {len(plan.done)} of {plural(len(plan.runs), 'run')}, {size}")
        if dropped:
            typer.echo(
                f"{plural(dropped, 'run')} of before dropped: of another grid, or of other code or data"
            )
