"""Settings as TOML: Python reads it, but does not write it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def to_toml(settings: Mapping[str, Any], table: str = "") -> str:
    """Return nested settings as TOML: plain values first, then a table for each mapping."""
    lines = [f"{key} = {_value(value)}" for key, value in settings.items() if not _is_table(value)]
    parts = ["\n".join(lines) + "\n"] if lines else []
    for key, value in settings.items():
        if _is_table(value):
            name = f"{table}.{key}" if table else key
            parts.append(f"[{name}]\n" + to_toml(value, name))
    return "\n".join(parts)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    raise TypeError(f"no TOML for {type(value).__name__}")
