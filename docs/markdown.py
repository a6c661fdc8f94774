"""Plain text as Markdown: what would be taken for markup is escaped, tables and code are laid out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`[^`]*`)")
_ESCAPED = str.maketrans({"<": "&lt;", "|": "&#124;", "[": "&#91;"})


def prose(text: str) -> str:
    """Return a docstring as Markdown: indented lines and what is between backticks are code already."""
    return "\n".join(line if line.startswith("    ") else inline(line) for line in text.splitlines())


def inline(text: str) -> str:
    """Return words as Markdown; nothing in them is taken for HTML, a link or the edge of a cell."""
    parts = _CODE.split(text)
    return "".join(part if part.startswith("`") else part.translate(_ESCAPED) for part in parts)


def code(text: str) -> str:
    """Return text as code within a line."""
    return f"`{text}`" if text else ""


def console(*commands: str) -> str:
    """Return commands as a reader types them."""
    return "\n".join(["```console", *(f"$ {command}" for command in commands), "```"])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, if it has any rows."""
    lines = [_row(row) for row in rows]
    return "\n".join([_row(head), _row(["---"] * len(head)), *lines]) if lines else ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page(*parts: str) -> str:
    """Return the parts of a page that are not empty, with a line between any two."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
