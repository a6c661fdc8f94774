"""The prose of the generated pages: Markdown files with named fields, `${field}`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from string import Template

FOLDER = Path(__file__).parent


def fill(name: str, **fields: object) -> str:
    """Return the page of a template; a missing field is an error, and empty parts leave no blank lines."""
    text = Template((FOLDER / f"{name}.md").read_text(encoding="utf-8")).substitute(fields)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def section(name: str, key: str, **fields: object) -> str:
    """Return the text under a heading `## key` of a file of short texts, as one line; empty without it."""
    return Template(_sections(name).get(key, "")).substitute(fields)


@cache
def _sections(name: str) -> dict[str, str]:
    parts = (FOLDER / f"{name}.md").read_text(encoding="utf-8").split("\n## ")[1:]
    return {key.strip(): " ".join(text.split()) for key, _, text in (part.partition("\n") for part in parts)}
