"""A report as JSON for its page, and the limits that keep the page small.

In the JSON, an array of more than a few numbers is an object

    {"q": …, "min": a, "max": b, "shape": […], "bits": 8 | 16, "log": true | false}

`q` is base64 of raw deflate of one code per number, row by row, little-endian. The highest code (255 or
65,535) is null. Any other code c, with m the second highest code, stands for t = a + (b − a) c / m. The
number is t, or sign(t) (e^|t| − 1) with `log`. The report on a run of a grid is an object {"z": …}: base64 of
raw deflate of its JSON in UTF-8, in which arrays are packed too. Browsers decode it with
DecompressionStream("deflate-raw").
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from fedcap.errors import plural
from fedcap.report.model import GridData, Report

T = TypeVar("T")

LARGEST_LIST = 64
"""An array of at most this many numbers remains a list."""
WIDE_RANGE = 100
"""If the largest number is this many times the median, codes are spread by logarithm."""
FINE, COARSE = 16, 8
"""Bits per number, in the report on a run and in the report on a run of a grid."""
MAX_NUMBERS = 150_000
"""How many numbers an array may have."""
MAX_ROUNDS = 500
"""How many rounds a series may have."""
MAX_NAME, MAX_TEXT = 60, 300
"""How many characters a name and a reason may have."""


class SizeLimit:
    """Shortens what is too long, and notes what it left out. `numbers` is the limit for an array."""

    def __init__(self, numbers: int = MAX_NUMBERS) -> None:
        self.numbers = numbers
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> list[str]:
        """What was left out or rounded so far, a sentence each."""
        return list(self._notes)

    def note(self, sentence: str) -> None:
        """Note that something was left out."""
        self._notes[sentence] = None

    def rounds(self, what: str, points: Sequence[T], width: int = 1) -> list[T]:
        """Return one point per round, or evenly spread ones if there are too many.

        `width` is how many numbers one point holds. The first and the last point are always included.
        """
        most = max(2, min(MAX_ROUNDS, self.numbers // max(1, width)))
        if len(points) <= most:
            return list(points)
        self.note(f"{what}: {most} of {plural(len(points), 'round')} are shown, evenly spread.")
        return [points[at] for at in np.linspace(0, len(points) - 1, most).round().astype(int)]

    def name(self, text: str) -> str:
        """Return a name, cut if it is too long."""
        return self._cut(text, MAX_NAME, "Names")

    def text(self, text: str) -> str:
        """Return a sentence from a record, cut if it is too long."""
        return self._cut(text, MAX_TEXT, "Reasons")

    def _cut(self, text: str, most: int, what: str) -> str:
        if len(text) <= most:
            return text
        self.note(f"{what} longer than {most} characters are cut.")
        return text[: most - 1] + "…"


def pack(report: Report) -> str:
    """Return a report as JSON; `<`, `>` and `&` are escaped, so that it cannot end a script element."""
    text = _json(_plain(report, FINE))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def quantise(array: np.ndarray, bits: int = FINE) -> Any:
    """Return an array as codes of this many bits, or as lists if it is small."""
    if array.size <= LARGEST_LIST:
        return _lists(array)
    known = np.isfinite(array)
    sizes = np.abs(array[known]).astype(float)
    log = bool(sizes.size) and bool(sizes.max() > WIDE_RANGE * np.median(sizes))
    values = np.where(known, array, 0.0).astype(float)
    values = np.sign(values) * np.log1p(np.abs(values)) if log else values
    low, high = (values[known].min(), values[known].max()) if sizes.size else (0.0, 0.0)
    most = 2**bits - 2
    codes = np.rint((values - low) * (most / (high - low))) if high > low else np.zeros(values.shape)
    content = np.where(known, codes, most + 1).astype("<u1" if bits == COARSE else "<u2").tobytes()
    limits = {"min": float(low), "max": float(high), "shape": list(array.shape), "bits": bits, "log": log}
    return {"q": _deflate(content), **limits}


@lru_cache(maxsize=1024)  # a live page of a grid packs the same reports again and again
def _pack_run(report: Report) -> dict[str, str]:
    """Return the report on a run of a grid, compressed."""
    return {"z": _deflate(_json(_plain(report, COARSE)).encode())}


def _deflate(content: bytes) -> str:
    """Return base64 of raw deflate."""
    compressor = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    return base64.b64encode(compressor.compress(content) + compressor.flush()).decode()


def _json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Any, bits: int) -> Any:
    """Return a structure with only what JSON can hold."""
    if isinstance(value, np.ndarray):
        return quantise(value, bits)
    if isinstance(value, GridData):
        parts = {"tables": _plain(value.tables, bits), "failed": _plain(value.failed, bits)}
        return {**parts, "runs": [_pack_run(run) for run in value.runs]}
    if is_dataclass(value):
        return {
            part.name: _plain(getattr(value, part.name), min(bits, part.metadata.get("bits", FINE)))
            for part in fields(value)
        }
    if isinstance(value, list | tuple):
        return [_plain(item, bits) for item in value]
    if isinstance(value, str):  # half of a surrogate pair cannot be encoded as UTF-8
        return value.encode("utf-8", "replace").decode()
    return _short(value) if isinstance(value, float) else value


def _lists(array: np.ndarray) -> Any:
    return [_lists(row) for row in array] if array.ndim else _short(float(array))


def _short(value: float) -> float | None:
    """Return a number with six digits; null if it is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
