"""Settings as they are written on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from fedcap import registry
from fedcap.errors import InputError

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, e.g. method.alpha=5. Repeatable."),
]
Workers = Annotated[int | None, typer.Option(help="Processes that train clients. [default: one per core]")]


def parse_setting(text: str) -> dict[str, Any]:
    """Return `a.b=value` as nested settings; a value that is not TOML is taken as a string."""
    key, equals, value = text.partition("=")
    if not equals or not all(key.split(".")):
        raise InputError(f"--set {text}: expected KEY=VALUE, such as method.alpha=5")
    parsed = registry.parse_value(value)
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    return parsed  # type: ignore[no-any-return]


def parse_lists(flag: str, texts: Iterable[str], form: str, example: str) -> dict[str, list[Any]]:
    """Return each `key=v1,v2` that was given with a flag as a key and its values; no key may come twice."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals or not all(key.split(".")) or not values.strip():
            raise InputError(f"{flag} {text}: expected {form}, such as {example}")
        if key in found:
            raise InputError(f"{flag} {key} is given twice: give its values in one, {key}=V1,V2")
        found[key] = [registry.parse_value(value) for value in registry.split(values)]
    return found
