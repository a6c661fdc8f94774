"""What the commands of a federation share: each says what to install where Flower is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from fedcap.cli.app import App, Command
from fedcap.errors import InputError

OperatorDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="The operator's directory.")]
SiteFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The site's directory.")]
EitherDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="The operator's or a site's directory.")]


class NeedsFlower(Command):
    """A command that runs only with Flower installed; its help is there without."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, or say what to install."""
        from importlib.util import find_spec

        if find_spec("flwr") is None or find_spec("cryptography") is None:
            raise InputError("a federation needs Flower: pip install 'fedcap[flower]'")
        return super().invoke(ctx)


class FederateApp(App):
    """A group of commands that need Flower."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Return a decorator that adds a function as a command."""
        return typer.Typer.command(self, name, cls=NeedsFlower, **settings)


def is_operators(directory: Path) -> bool:
    """Whether a directory is the operator's; refuse one that is neither the operator's nor a site's."""
    from fedcap.federation.config import FEDERATION, SITE

    if (directory / FEDERATION).is_file():
        return True
    if (directory / SITE).is_file():
        return False
    raise InputError(
        f"{directory} is neither an operator's directory (fedcap federate init) nor a site's (… enrol)"
    )
