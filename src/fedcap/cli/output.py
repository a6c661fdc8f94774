"""How commands print: JSON, or a table that fits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fedcap.records import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def print_json(content: Any) -> None:
    """Print JSON that people can read."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


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
