"""Settings as they are written on the command line."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fedcap import choices
from fedcap.registry import InputError

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
    parsed = choices.value(value)
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    return parsed  # type: ignore[no-any-return]
