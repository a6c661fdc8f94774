"""A story as JSON: as it is, or packed for a page.

Packed, an array of more than a few numbers is a table

    {"q": …, "min": a, "max": b, "shape": […], "bits": 8 | 16, "log": true | false}

whose `q` is base64 of raw deflate of a code per number, row by row, little-endian. The highest code, 255 or
65,535, is null; any other code c of the highest but one, m, stands for t = a + (b − a) c / m, and the number
is t, or with `log` sign(t) (e^|t| − 1). The story of a grid's run is a table {"z": …}: base64 of raw deflate
of its JSON, UTF-8, in which arrays are packed in turn. Browsers have DecompressionStream("deflate-raw").
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from fedcap.report.story.story import Map, Story

FEW = 64
"""Up to so many numbers an array stays a list."""
FAR = 100
"""If the largest number is so many times the median one, codes are spread by logarithm."""
FINE, COARSE = 16, 8
"""Bits of a number, in a run's story and in that of a grid's run."""


def unpacked(story: Story) -> str:
    """Return a story as JSON without anything packed."""
    return _json(_plain(story, lambda array, bits: _lists(array), lambda cell: cell))


def packed(story: Story) -> str:
    """Return a story as JSON for a page; `<`, `>` and `&` are escaped, so that it ends no script element."""
    made = _json(_plain(story, quantised, _zipped))
    for sign in "<>&":
        made = made.replace(sign, f"\\u{ord(sign):04x}")
    return made


def quantised(array: np.ndarray, bits: int = FINE) -> Any:
    """Return an array as codes of so many bits, or as lists if it is small."""
    if array.size <= FEW:
        return _lists(array)
    known = np.isfinite(array)
    sizes = np.abs(array[known]).astype(float)
    log = bool(sizes.size) and bool(sizes.max() > FAR * np.median(sizes))
    values = np.where(known, array, 0.0).astype(float)
    values = np.sign(values) * np.log1p(np.abs(values)) if log else values
    low, high = (values[known].min(), values[known].max()) if sizes.size else (0.0, 0.0)
    most = 2**bits - 2
    codes = np.rint((values - low) * (most / (high - low))) if high > low else np.zeros(values.shape)
    kept = np.where(known, codes, most + 1).astype("<u1" if bits == COARSE else "<u2")
    return {
        "q": _deflated(kept.tobytes()),
        "min": float(low),
        "max": float(high),
        "shape": list(array.shape),
        "bits": bits,
        "log": log,
    }


@lru_cache(maxsize=1024)  # a grid that is watched has the same stories again
def _zipped(cell: Story) -> dict[str, str]:
    """Return the story of a grid's run, in few bytes."""
    made = _json(_plain(cell, lambda array, bits: quantised(array, COARSE), _zipped))
    return {"z": _deflated(made.encode())}


def _deflated(content: bytes) -> str:
    """Return base64 of raw deflate."""
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    return base64.b64encode(packer.compress(content) + packer.flush()).decode()


def _json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(
    value: Any,
    array: Callable[[np.ndarray, int], Any],
    cell: Callable[[Any], Any],
    bits: int = FINE,
) -> Any:
    """Return a structure as JSON has it; `array` and `cell` make something of each array and grid's run."""
    again = partial(_plain, array=array, cell=cell)
    if isinstance(value, np.ndarray):
        return array(value, bits)
    if isinstance(value, Map):
        zipped = [again(cell(story)) for story in value.cells]
        return {"panels": again(value.panels), "cells": zipped, "failed": again(value.failed)}
    if is_dataclass(value):
        return {
            part.name: again(getattr(value, part.name), bits=part.metadata.get("bits", FINE))
            for part in fields(value)
        }
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return [again(item) for item in value]
    if isinstance(value, str):  # half a surrogate pair has no UTF-8
        return value.encode("utf-8", "replace").decode()
    return _short(value) if isinstance(value, float) else value


def _lists(array: np.ndarray) -> Any:
    """Return an array as nested lists."""
    return [_lists(row) for row in array] if array.ndim else _short(float(array))


def _short(value: float) -> float | None:
    """Return a number to six digits; null if it is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
