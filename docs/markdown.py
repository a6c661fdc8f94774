"""Plain text as Markdown: markup is escaped, and tables and code get their form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`[^`]*`)")
_ESCAPED = str.maketrans({"<": "&lt;", "|": "&#124;", "[": "&#91;"})


def prose(text: str) -> str:
    """Return a docstring as Markdown; indented lines and text between backticks stay unchanged."""
    return "\n".join(line if line.startswith("    ") else inline(line) for line in text.splitlines())


def inline(text: str) -> str:
    """Return text as Markdown in which nothing is HTML, a link or the edge of a cell."""
    parts = _CODE.split(text)
    return "".join(part if part.startswith("`") else part.translate(_ESCAPED) for part in parts)


def code(text: str) -> str:
    """Return text as code within a line."""
    return f"`{text}`" if text else ""


def console(*commands: str) -> str:
    """Return a block of commands."""
    return "\n".join(["```console", *(f"$ {command}" for command in commands), "```"])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; empty without rows."""
    lines = [_row(row) for row in rows]
    return "\n".join([_row(head), _row(["---"] * len(head)), *lines]) if lines else ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page(*parts: str) -> str:
    """Return a page of the parts that are not empty, with an empty line between them."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
