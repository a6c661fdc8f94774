"""Groups of commands that look alike: plain text, `-h` beside `--help`, help where no command is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import typer
from typer.core import TyperCommand, TyperGroup


def _unescaped(text: str) -> str:
    """Return help as it was meant: typer writes `\\[required]`, even where nothing reads its markup."""
    return text.replace("\\[", "[")


class Command(TyperCommand):
    """A command with plain help."""

    def get_help(self, ctx: click.Context) -> str:
        """Return the help."""
        return _unescaped(super().get_help(ctx))


class Group(TyperGroup):
    """A group of commands with plain help."""

    def get_help(self, ctx: click.Context) -> str:
        """Return the help."""
        return _unescaped(super().get_help(ctx))


class App(typer.Typer):
    """A group of commands; `command` adds a function to it."""

    def __init__(self, help: str, name: str | None = None) -> None:
        super().__init__(
            name=name,
            help=help,
            cls=Group,
            no_args_is_help=True,
            add_completion=False,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            context_settings={"help_option_names": ["-h", "--help"]},
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Return a decorator that adds a function as a command."""
        return super().command(name, cls=Command, **settings)
