"""Settings as TOML files: Python reads TOML, but does not write it."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcap.errors import InputError


def read_toml(path: Path | str) -> dict[str, Any]:
    """Read a TOML file; if that fails, raise an `InputError` of one line."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None


def to_toml(settings: Mapping[str, Any], table: str = "") -> str:
    """Return nested settings as TOML: plain values first, then a table for each mapping."""
    lines = [f"{_key(key)} = {_value(value)}" for key, value in settings.items() if not _is_table(value)]
    parts = ["\n".join(lines) + "\n"] if lines else []
    for key, value in settings.items():
        if _is_table(value):
            name = f"{table}.{_key(key)}" if table else _key(key)
            parts.append(f"[{name}]\n" + to_toml(value, name))
    return "\n".join(parts)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return "".join(
            c if c.isprintable() else f"\\U{ord(c):08x}" for c in json.dumps(value, ensure_ascii=False)
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)} = {_value(item)}' for key, item in value.items())}}}"
    raise TypeError(f"no TOML for {type(value).__name__}")
