"""Errors that are shown to the user, and helpers for messages: suggestions, plurals, durations."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable
from functools import cache
from typing import Any


class InputError(ValueError):
    """An input of the user cannot be used; the message says what to do.

    `code` names the kind of mistake for programs and tests, `field` the setting or argument that is wrong.
    """

    def __init__(self, message: str = "", *, code: str = "bad-input", field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.field = field


class UserCodeError(InputError):
    """The user's own code failed; the message names it, and the cause has the traceback."""


class RunError(RuntimeError):
    """A run cannot continue; the message says why, and the cause has the traceback."""


@cache
def warn_once(message: str) -> None:
    """Log a warning, once in a process."""
    logging.getLogger("fedcap").warning(message)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "did you mean …? (known: …)" for an unknown word."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(c) for c in close)}? " if close else ""
    return f"{hint}(known: {', '.join(known) or 'none'})"


def plural(count: int, noun: str) -> str:
    """Return a number with a noun: "1 round", "30 rounds", "2 classes", "1,797 samples"."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def duration(seconds: float) -> str:
    """Return a duration with at most two units: "25 s", "3 min 10 s", "2 h 5 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def validation_message(error: Any) -> str:
    """Return the first fault of a pydantic `ValidationError` as one line that quotes the value.

    An option that accepts a number or a word has a fault for each. If the value is a number, only the fault
    of the number is reported.
    """
    faults = error.errors()
    place, value = _place(faults[0]), faults[0]["input"]
    relevant = [fault for fault in faults if _place(fault) == place]
    if isinstance(value, float | int):
        relevant = [fault for fault in relevant if fault["type"] != "literal_error"] or relevant
    messages = (fault["msg"].removeprefix("Value error, ").removeprefix("Input ") for fault in relevant)
    message = " or ".join(dict.fromkeys(messages))
    if faults[0]["type"] == "value_error":
        return f"{place}: {message}" if place else message
    return f"{place} {message} (got {value!r})"


def _place(fault: Any) -> str:
    """Return the place of a fault, without pydantic's names for the members of a union."""
    return ".".join(
        part for part in map(str, fault["loc"]) if not part.startswith(("constrained-", "literal["))
    )
