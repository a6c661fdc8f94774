"""`fedcap report`: one page that tells what a run, a grid or a federation came to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcap.cli.output import AsJson, print_json, save

REPORT = "report.html"
StoryDirectory = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory of a run, a grid or a federation, finished or not.")
]
LocalRun = Annotated[
    Path | None, typer.Option(help="A run with --method local on the same data, to show what clients gain.")
]


def report(
    directory: StoryDirectory,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write the page. [default: DIR/report.html]")
    ] = None,
    local: LocalRun = None,
    as_json: AsJson = False,
) -> None:
    """Write one HTML page that tells what a run, a grid or a federation came to.

    The page needs no network and no other file: it opens from a mail attachment.
    """
    from fedcap.cli.stories import story_for
    from fedcap.report.pack import pack
    from fedcap.report.page import page

    made = story_for(directory, local)
    path = out or directory / REPORT
    content = page(pack(made)).encode()
    save(path, content)
    if as_json:
        problems, omitted = list(made.problems), list(made.omitted)
        print_json({"file": str(path), "bytes": len(content), "omitted": omitted, "problems": problems})
        return
    typer.echo(f"{path}: {len(content) / 1000:,.0f} kB")
    typer.echo(f"  {made.summary}")
    for line in (*(f"problem: {problem}" for problem in made.problems), *made.omitted):
        typer.echo(f"  {line}")
