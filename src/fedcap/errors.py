"""The errors that fedcap raises, and a few phrases for messages.

An error's message says what is wrong, quotes the offending value and says what to do. It never names an
option of the command line. Its `code` is a short, stable name that programs and tests compare.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable
from functools import cache
from typing import Any, Self


class _Coded(Exception):
    """An error with a code, and with the name of the thing that it is about."""

    default_code = ""

    def __init__(self, message: str, *, code: str = "", field: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        """A short, stable name of the kind of error, such as "unknown-name" or "missing-file"."""
        self.field = field
        """The setting, the path or the name that the error is about, if there is one."""

    def prefixed(self, where: object) -> Self:
        """Return the same error with a message that starts with where it occurred."""
        return type(self)(f"{where}: {self}", code=self.code, field=self.field)


class InputError(_Coded, ValueError):
    """The user's input cannot be used."""

    default_code = "bad-input"


class UserCodeError(InputError):
    """The user's own code failed; the message names it, and the cause has the traceback."""

    default_code = "user-code"


class RunError(_Coded, RuntimeError):
    """A run cannot continue; the cause has the traceback."""

    default_code = "run-failed"


def invalid(error: Any, message: str = "") -> InputError:
    """Return a pydantic `ValidationError` as an `InputError` with the code and field of its first complaint.

    `message` replaces pydantic's message.
    """
    first = error.errors()[0]
    raised = first.get("ctx", {}).get("error")
    message = message or validation_message(error)
    if isinstance(raised, InputError):
        return InputError(message, code=raised.code, field=raised.field or _place(first) or None)
    unknown = first["type"] in ("extra_forbidden", "unexpected_keyword_argument")
    return InputError(
        message, code="unknown-setting" if unknown else "bad-value", field=_place(first) or None
    )


@cache
def warn_once(message: str) -> None:
    """Log a warning, once in a process."""
    logging.getLogger("fedcap").warning(message)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return "did you mean …? (known: …)" for an unknown word, or "choose …" if none is near."""
    known = sorted(known)
    if not known:
        return "there are none"
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    if not close:
        *first, last = known
        return f"choose {', '.join(first)} or {last}" if first else f"there is only {last}"
    return f"did you mean {' or '.join(map(repr, close))}? (known: {', '.join(known)})"


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
    if faults[0]["type"] == "missing":
        return f"{place} is missing"
    if faults[0]["type"] == "extra_forbidden":
        return f"{place} is unknown"
    relevant = [fault for fault in faults if _place(fault) == place]
    if isinstance(value, float | int):
        relevant = [fault for fault in relevant if fault["type"] != "literal_error"] or relevant
    messages = (fault["msg"].partition(", unable to parse")[0] for fault in relevant)
    messages = (message.removeprefix("Value error, ").removeprefix("Input ") for message in messages)
    message = " or ".join(dict.fromkeys(messages))
    if isinstance(value, str) and message in ("should be a valid tuple", "should be a valid list"):
        return f'{place} should be a list, such as ["{value}"] (got {value!r})'
    if faults[0]["type"] == "value_error":
        return f"{place}: {message}" if place else message
    return f"{place} {message} (got {value!r})"


def _place(fault: Any) -> str:
    """Return the place of a fault, without pydantic's names for the members of a union."""
    return ".".join(
        part for part in map(str, fault["loc"]) if not part.startswith(("constrained-", "literal["))
    )
