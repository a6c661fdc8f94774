"""`fedcap paper keep` and `write`: what a repository keeps of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcap.cli.output import AsJson, print_json
from fedcap.errors import plural

RUNS, RESULTS = Path("fedcap-paper"), Path("results")
Out = Annotated[Path, typer.Option(help="Where runs are kept.")]
Results = Annotated[Path, typer.Option(help="A folder of outcomes, small files that a repository can keep.")]


def keep(out: Out = RUNS, results: Results = RESULTS, as_json: AsJson = False) -> None:
    """Keep the outcomes of finished runs as small files.

    Those of any table or figure among the runs in --out are written into --results.
    """
    from fedcap.experiments.paper.items import items
    from fedcap.experiments.paper.recorded import Recorded, planned
    from fedcap.experiments.store import CellStore, save_results

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
