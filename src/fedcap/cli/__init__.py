"""The command line: arguments to calls, and nothing else.

Everything heavy is imported inside the commands, so that `fedcap --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from fedcap.cli import (
    compare,
    data,
    demo,
    explain,
    export,
    federate,
    listing,
    plot,
    predict,
    report,
    run,
    show,
    tune,
    watch,
)
from fedcap.cli.app import App
from fedcap.cli.errors import exit_code

app = App(
    name="fedcap",
    help="Federated learning that stays accurate when clients' data differ and some are hostile.",
)
app.command()(demo.demo)
app.command()(run.run)
app.command()(compare.compare)
app.command()(tune.tune)
app.command()(show.show)
app.command()(report.report)
app.command()(watch.watch)
app.command()(plot.plot)
app.command()(export.export)
app.command()(predict.predict)
app.command("list")(listing.list_)
app.command()(explain.explain)
app.add_typer(data.app, name="data")
app.add_typer(federate.app, name="federate")


def _version(wanted: bool) -> None:
    if wanted:
        from fedcap import __version__

        typer.echo(f"fedcap {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors are one line, and the exit code says whether the input was at fault."""
    if (here := os.getcwd()) not in sys.path:  # for `module:name`; last, so that it shadows no module
        sys.path.append(here)
    sys.exit(exit_code(lambda: app(arguments, prog_name="fedcap", standalone_mode=False)))
