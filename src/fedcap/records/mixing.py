"""mixing.bin: who is mixed from whom in each round, R×N, with a byte for each weight.

A frame per round: its length and its CRC-32, four bytes each, little-endian, then deflated content: a line of
JSON with the round, the receivers and the contributors; the largest weight of each receiver's row, as 32-bit
floats; and for each receiver a byte per contributor, in 255ths of the row's largest. Methods that mix nothing
write no file. A frame that was cut off in mid-write is left out.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MIXING = "mixing.bin"
_HEAD = struct.Struct("<II")
_STEPS = 255


@dataclass(frozen=True, eq=False)
class Mixing:
    """From whose models each client's model was mixed in a round."""

    round: int
    receivers: Sequence[str]
    contributors: Sequence[str]
    weights: np.ndarray
    """R×N. Read back, each weight is within a 510th of its row's largest."""

    @classmethod
    def of(
        cls, number: int, receivers: Sequence[str], contributors: Sequence[str], weights: Any
    ) -> Mixing | None:
        """Return the weights of a round, a tensor; none if there are none."""
        if weights is None or not len(weights):
            return None
        return cls(number, list(receivers), list(contributors), weights.numpy(force=True))

    def to_bytes(self) -> bytes:
        """Return the round's frame."""
        weights = np.nan_to_num(np.asarray(self.weights, dtype=np.float32), posinf=0.0, neginf=0.0).clip(0)
        largest = weights.max(axis=1, initial=0.0).astype("<f4")
        unit = np.where(largest > 0, largest, 1)[:, None]
        names = {"round": self.round, "receivers": [*self.receivers], "contributors": [*self.contributors]}
        codes = np.rint(_STEPS * (weights / unit)).astype(np.uint8)
        content = zlib.compress(json.dumps(names).encode() + b"\n" + largest.tobytes() + codes.tobytes(), 6)
        return _HEAD.pack(len(content), zlib.crc32(content)) + content

    @classmethod
    def from_bytes(cls, content: bytes) -> Mixing:
        """Read a frame's content back; what is none is a `ValueError`."""
        try:
            line, _, rest = zlib.decompress(content).partition(b"\n")
            names = json.loads(line)
            receivers, contributors = (
                list(map(str, names["receivers"])),
                list(map(str, names["contributors"])),
            )
            number = int(names["round"])
        except (zlib.error, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"no mixing weights: {error}") from None
        count = len(receivers)
        largest = np.frombuffer(rest[: 4 * count], "<f4")
        codes = np.frombuffer(rest[4 * count :], np.uint8)
        if largest.size != count or codes.size != count * len(contributors):
            raise ValueError("as many weights are needed as there are clients")
        weights = codes.reshape(count, len(contributors)) / _STEPS * largest[:, None].astype(float)
        return cls(number, receivers, contributors, weights)


def read_mixings(content: bytes) -> Iterator[tuple[Mixing, bytes]]:
    """Yield the weights of each round and the frame they came in, up to one that is cut off or damaged."""
    start = 0
    while start + _HEAD.size <= len(content):
        length, expected = _HEAD.unpack_from(content, start)
        end = start + _HEAD.size + length
        inside = content[start + _HEAD.size : end]
        if len(inside) < length or zlib.crc32(inside) != expected:
            return
        try:
            yield Mixing.from_bytes(inside), content[start:end]
        except ValueError:
            return
        start = end
