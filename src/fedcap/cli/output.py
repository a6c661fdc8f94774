"""How commands print: JSON, or a table that fits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def print_json(content: Any) -> None:
    """Print JSON that people can read."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def print_table(
    title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: bool = True
) -> None:
    """Print a table; columns after the first stand to the right if they are numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place and numbers else "left")
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console.width = 110
    console.print(table)
