"""What the commands of a federation share: directories, questions, printed lines, and the need of Flower."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from fedcap.cli.common import Command, echo, print_line
from fedcap.errors import InputError

OperatorDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="The operator's directory.")]
SiteFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The site's directory.")]
EitherDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="The operator's or a site's directory.")]


class NeedsFlower(Command):
    """A command that needs Flower to run; its help does not."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, or report what to install."""
        from importlib.util import find_spec

        if find_spec("flwr") is None or find_spec("cryptography") is None:
            raise InputError(
                "a federation needs Flower: pip install 'fedcap[flower]'", code="needs-extra", field="flower"
            )
        return super().invoke(ctx)


def is_operators(directory: Path) -> bool:
    """Return whether a directory is the operator's, not a site's; refuse any other directory."""
    from fedcap.federation.config import FEDERATION, SITE

    if (directory / FEDERATION).is_file():
        return True
    if (directory / SITE).is_file():
        return False
    raise InputError(
        f"{directory} is neither an operator's directory (fedcap federate init) nor a site's (fedcap federate"
        " join)",
        code="not-a-federation",
        field=str(directory),
    )


def printer(as_json: bool) -> Callable[[str], None]:
    """Return a function that prints a line with the time, or as an object of JSON."""

    def say(line: str) -> None:
        if as_json:
            print_line({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "message": line})
        else:
            echo(f"{time.strftime('%H:%M:%S')}  {line}")

    return say


def confirmed(question: str, yes: bool, as_json: bool) -> bool:
    """Ask a question on a terminal, unless it is answered already; without a terminal, the answer is no."""
    import sys

    return yes or (sys.stdin is not None and sys.stdin.isatty() and typer.confirm(question, err=as_json))
