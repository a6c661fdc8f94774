"""Words as people read them."""

from __future__ import annotations

from typing import Any


def plural(count: int, noun: str) -> str:
    """Return a number and what it counts: "1 round", "30 rounds", "2 classes", "1,797 samples"."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def duration(seconds: float) -> str:
    """Return a time as people say it, with two units at most: "25 s", "3 min 10 s", "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def validation_message(error: Any) -> str:
    """Return the first complaint of a pydantic `ValidationError` as one line that quotes the value."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if first["type"] == "value_error":
        return f"{place}: {message}" if place else str(message)
    return f"{place} {message} (got {first['input']!r})"
