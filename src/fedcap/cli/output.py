"""How commands print: JSON, or a table that fits."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcap.errors import InputError

if TYPE_CHECKING:
    from fedcap.report.tables import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def to_json(content: Any) -> str:
    """Return JSON that people can read."""
    return json.dumps(content, indent=2, ensure_ascii=False)


@contextmanager
def users_code() -> Iterator[None]:
    """Send to stderr what the user's own code prints in the block: stdout is for our output alone."""
    with redirect_stdout(sys.stderr):
        yield


def print_json(content: Any) -> None:
    """Print JSON that people can read."""
    typer.echo(to_json(content))


def print_table(table: Table, numbers: bool = True) -> None:
    """Print a table and its notes; with `numbers`, all columns but the first are aligned right."""
    from rich import table as rich_table
    from rich.console import Console

    drawn = rich_table.Table(title=table.title or None, title_justify="left")
    for place, column in enumerate(table.columns):
        drawn.add_column(column, justify="right" if place and numbers else "left")
    for row in table.cells():
        drawn.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console.width = 110
    console.print(drawn)
    for note in table.notes:
        typer.echo(note)


def save(path: Path, content: bytes | str) -> None:
    """Write a file whole, or tell in a line why it cannot be written."""
    from fedcap.files import write_aside

    try:
        write_aside(path, content)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
