"""Checksums: of a checkpoint's tensors, and of a file's lines, each with all lines before it.

They tell damage, and changes by hand; nothing protects from somebody who computes them anew. CRC-32 takes
less than a millisecond for a megabyte on any machine, a small part of what it takes to write one.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable

_SIGNED = re.compile(r'(.*), "checksum": "([0-9a-f]{8})"\}', re.DOTALL)


def checksum(parts: Iterable[bytes | memoryview]) -> str:
    """Return the CRC-32, in hex, of the parts, one after the other."""
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return f"{value:08x}"


def signed(line: str, before: str) -> str:
    """Return a line of JSON, a table, with a checksum of it and of the one before as its last entry."""
    return f'{line[:-1]}, "checksum": "{_follow(line, before)}"}}'


def signature(line: str) -> str:
    """Return the checksum that a line ends with, empty if there is none."""
    found = _SIGNED.fullmatch(line)
    return found[2] if found else ""


def is_intact(line: str, before: str) -> bool:
    """Whether a line is as it was signed, after a line with the checksum `before`."""
    found = _SIGNED.fullmatch(line)
    return found is not None and found[2] == _follow(found[1] + "}", before)


def _follow(line: str, before: str) -> str:
    return checksum([before.encode(), line.encode()])
