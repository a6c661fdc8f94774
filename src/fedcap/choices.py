"""How a thing and its options are written in a word: `bucketing(median)`, `fedcap(alpha=10, phi=0.1)`.

What stands alone in the brackets is the inner rule of a wrapper, and may have options of its own. Values are
those of TOML, or text. It is the way things are named in flags, and the way tables call them.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

_WORD = re.compile(r"\s*([\w.:-]+)\s*\((.*)\)\s*", re.DOTALL)
_OPTION = re.compile(r"\s*(\w+)\s*=(.*)", re.DOTALL)
_INNER = re.compile(r"\s*[A-Za-z][\w.:-]*\s*(\(.*\))?\s*", re.DOTALL)


def split(text: str) -> list[str]:
    """Split a list at its commas, but not at those within brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        depth += (not quote) * ((letter in "([{") - (letter in ")]}"))
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def value(text: str) -> Any:
    """Return what TOML makes of a value; what is not TOML is taken as text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def spelled(text: str) -> dict[str, Any]:
    """Return a word as a table of name and options; one that is written otherwise is a name alone."""
    found = _WORD.fullmatch(text)
    table: dict[str, Any] = {"name": text}
    if found is None:
        return table
    table["name"] = found[1]
    for part in split(found[2]):
        if option := _OPTION.fullmatch(part):
            table[option[1]] = value(option[2])
        elif _INNER.fullmatch(part) and "rule" not in table:
            table["rule"] = part
        else:
            return {"name": text}
    return table


def to_table(choice: Any) -> Any:
    """Return a name or a word as a table, `"median"` as `{"name": "median"}`, anything else as it is.

    A table has the name of a thing and, beside it, the thing's options.
    """
    return spelled(choice) if isinstance(choice, str) else choice


def spelling(choice: Any) -> str:
    """Return the word for a name, or for a table of name and options."""
    if not isinstance(choice, Mapping) or "name" not in choice:
        return choice if isinstance(choice, str) else json.dumps(choice, ensure_ascii=False, default=str)
    options = dict(choice)
    name = str(options.pop("name"))
    inner = [spelling(options.pop("rule"))] if "rule" in options else []
    parts = [*inner, *(f"{key}={spelling(option)}" for key, option in options.items())]
    return f"{name}({', '.join(parts)})" if parts else name
