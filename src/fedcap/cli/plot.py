"""`fedcap plot`: figures for papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcap.cli.output import AsJson, print_json
from fedcap.cli.report import LocalRun, StoryDirectory
from fedcap.errors import InputError, nearest

ENDINGS = (".png", ".pdf", ".svg")


def plot(
    directory: StoryDirectory,
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="Which figure. [default: list what there is]")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="FILE.png, .pdf, .svg; no ending: all. [default: DIR-KIND.png]"),
    ] = None,
    rounds: Annotated[
        str | None, typer.Option(help="Rounds to show in a map of mixing weights: 1,10,30.")
    ] = None,
    local: LocalRun = None,
    as_json: AsJson = False,
) -> None:
    """Draw a figure for a paper, as PNG, PDF or SVG, in colours that colour-blind people tell apart."""
    from fedcap.cli.stories import story_for
    from fedcap.report.plots import plots_of

    there = plots_of(story_for(directory, local))
    if kind is None:
        if as_json:
            print_json({name: one.description for name, one in there.items()})
            return
        if not there:
            typer.echo(f"{directory} has nothing to draw yet")
        for name, one in there.items():
            typer.echo(f"  {name:<10}{one.description}")
        return
    if kind not in there:
        raise InputError(f"{directory} has no figure {kind!r}: {nearest(kind, there)}")
    path = out or Path(f"{directory.absolute().name}-{kind}.png")
    if path.suffix and path.suffix not in ENDINGS:
        raise InputError(f"cannot draw {path}: the file's ending says how, {', '.join(ENDINGS)}")
    try:
        written = there[kind].draw(path, _numbers(rounds))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    if as_json:
        print_json([str(file) for file in written])
    else:
        typer.echo(f"Saved: {', '.join(map(str, written))}")


def _numbers(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--rounds {text}: expected numbers of rounds, such as 1,10,30") from None
