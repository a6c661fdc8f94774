"""`fedcap watch`: the report's page, fed while a run, a grid or a federation goes on."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcap.cli.federate.running import until_stopped
from fedcap.cli.output import AsJson
from fedcap.cli.report import LocalRun
from fedcap.errors import InputError

if TYPE_CHECKING:
    from fedcap.report.grid import Memo


def watch(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Directory of a run, a grid or a federation; it may come later."),
    ],
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, show_default=False, help="Port on 127.0.0.1. [default: a free one]"),
    ] = 0,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    local: LocalRun = None,
    as_json: AsJson = False,
) -> None:
    """Show a run, a grid or a federation in the browser while it goes on.

    The page is on this machine alone, and whoever opens it must know its whole address. Ctrl-C ends the page,
    and nothing else.
    """
    from fedcap.cli.stories import story_for
    from fedcap.report.live import LivePage
    from fedcap.report.page import NothingThere

    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory} is a file: give the directory of a run, a grid or a federation")
    memo: Memo = {}  # of a grid, the runs that have not changed are not read again
    if local is not None:
        with suppress(NothingThere):  # if it does not go with what is there, that is told at once
            story_for(directory, local, memo)
    with (
        until_stopped() as stop,
        LivePage(directory, port, lambda path: story_for(path, local, memo)) as served,
    ):
        if as_json:
            typer.echo(json.dumps({"address": served.address, "directory": str(directory)}))
        else:
            later = "" if directory.exists() else ", which does not exist yet"
            typer.echo(f"{directory}{later}: {served.address} (Ctrl-C ends)")
        if browse:
            typer.launch(served.address)
        while not stop.wait(1.0):  # in turns: a wait without end lets no signal through
            pass
    if not as_json:
        typer.echo("the page is closed; what it showed goes on")
