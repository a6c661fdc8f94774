"""Words as people read them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class InputError(ValueError):
    """Something the user gave cannot be used; the message says what to do about it.

    `code` names the kind of mistake for programs and tests, `field` the setting or argument that is wrong.
    """

    def __init__(self, message: str = "", *, code: str = "bad-input", field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.field = field


class UserCodeError(InputError):
    """Code of the user's own fails; the message names it, and the cause has the traceback."""


class RunError(RuntimeError):
    """A run cannot go on; the message says all there is to say, and the cause has the traceback."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "did you mean …? (known: …)" for a word that is not among the known ones."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(c) for c in close)}? " if close else ""
    return f"{hint}(known: {', '.join(known) or 'none'})"


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
    """Return the first complaint of a pydantic `ValidationError` as one line that quotes the value.

    What takes a number or a word complains of both: of a number, only what is wrong with the number counts.
    """
    faults = error.errors()
    place, value = _place(faults[0]), faults[0]["input"]
    same = [fault for fault in faults if _place(fault) == place]
    told = (
        [fault for fault in same if fault["type"] != "literal_error"]
        if isinstance(value, float | int)
        else []
    )
    said = dict.fromkeys(
        fault["msg"].removeprefix("Value error, ").removeprefix("Input ") for fault in told or same
    )
    message = " or ".join(said)
    if faults[0]["type"] == "value_error":
        return f"{place}: {message}" if place else message
    return f"{place} {message} (got {value!r})"


def _place(fault: Any) -> str:
    """Return where a fault is; pydantic's names for the choices of a union are no part of it."""
    return ".".join(
        part for part in map(str, fault["loc"]) if not part.startswith(("constrained-", "literal["))
    )
