"""The command line's root: all commands, and `main`.

Everything heavy is imported inside the commands, so that `fedcap --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from fedcap.cli import compare, data, demo, federate, predict, report, run, show
from fedcap.cli.common import App, echo, exit_code, prepare_streams
from fedcap.cli.list import list_

app = App(
    name="fedcap",
    help="Federated learning that stays accurate when clients' data differ and some clients are malicious.",
)
app.command()(demo.demo)
app.command()(run.run)
app.command()(compare.compare)
app.command()(compare.tune)
app.command()(show.show)
app.command()(report.report)
app.command()(report.plot)
app.command()(predict.predict)
app.command()(predict.export)
app.command("list")(list_)
app.add_typer(data.app, name="data")
app.add_typer(federate.app, name="federate")


def _version(wanted: bool) -> None:
    if wanted:
        from fedcap import __version__

        echo(f"fedcap {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; an error is one line, and the exit code says whether the input was at fault."""
    prepare_streams()
    if (here := os.getcwd()) not in sys.path:  # for `module:name`; last, so that it shadows no module
        sys.path.append(here)
    sys.exit(exit_code(lambda: app(arguments, prog_name="fedcap", standalone_mode=False)))
