"""Settings and provenance as lines: a name with dots, and a value as it is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcap.registry import spelling
from fedcap.report.story.series import Fact
from fedcap.report.story.thinning import Thinning
from fedcap.runs import to_toml


def facts(content: Mapping[str, Any], thin: Thinning, prefix: str = "") -> list[Fact]:
    """Return nested settings as names with dots, and values as they are written."""
    found = []
    for key, value in content.items():
        if isinstance(value, Mapping):
            found += facts(value, thin, f"{prefix}{key}.")
        elif value is not None:
            found.append(Fact(thin.name(f"{prefix}{key}"), thin.words(_value(value))))
    return found


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_value(item) for item in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return spelling(value)
    return str(value)


def config_of(settings: Mapping[str, Any]) -> str:
    """Return settings as the TOML that `fedcap run` reads; what is none is left out."""
    return to_toml(_there(settings))


def _there(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _there(item) for key, item in value.items() if item is not None}
    return [_there(item) for item in value if item is not None] if isinstance(value, list) else value
