"""mixing.bin: the weights with which each client's model was mixed from other clients' models, R×N per round.

The file has a frame per round. The head of a frame is three little-endian 32-bit numbers: the length of the
content, its CRC-32, and the round. The content is deflated: a line of JSON with the names of receivers and
contributors, the largest weight of each row as a 32-bit float, and the weights row by row, one byte each, in
255ths of the largest weight of the row. Methods that do not mix models write no file.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

MIXING = "mixing.bin"
_HEAD = struct.Struct("<III")
_STEPS = 255


@dataclass(frozen=True, eq=False)
class Mixing:
    """The weights with which the models of a round were mixed."""

    round: int
    receivers: Sequence[str]
    contributors: Sequence[str]
    weights: np.ndarray
    """R×N. In a file, the error of a weight is at most 1/510 of the largest weight of its row."""

    @classmethod
    def of(
        cls, number: int, receivers: Sequence[str], contributors: Sequence[str], weights: Any
    ) -> Mixing | None:
        """Return the weights of a round, given as a tensor; none if there are no weights."""
        if weights is None or not len(weights):
            return None
        return cls(number, list(receivers), list(contributors), weights.numpy(force=True))

    def to_frame(self) -> bytes:
        """Return the frame of the round."""
        import numpy as np

        weights = np.nan_to_num(np.asarray(self.weights, dtype=np.float32), posinf=0.0, neginf=0.0).clip(0)
        largest = weights.max(axis=1, initial=0.0).astype("<f4")
        unit = np.where(largest > 0, largest, 1)[:, None]
        codes = np.rint(_STEPS * (weights / unit)).astype(np.uint8)
        names = json.dumps([[*self.receivers], [*self.contributors]]).encode()
        content = zlib.compress(names + b"\n" + largest.tobytes() + codes.tobytes())
        return _HEAD.pack(len(content), _checksum(self.round, content), self.round) + content

    @classmethod
    def from_frame(cls, frame: bytes) -> Mixing:
        """Read a complete frame; raise `ValueError` or `TypeError` if it has another form."""
        import numpy as np

        _, _, number = _HEAD.unpack_from(frame)
        try:
            names, _, rest = zlib.decompress(frame[_HEAD.size :]).partition(b"\n")
        except zlib.error as error:
            raise ValueError(str(error)) from None
        receivers, contributors = ([str(name) for name in line] for line in json.loads(names))
        rows, columns = len(receivers), len(contributors)
        largest = np.frombuffer(rest, "<f4", rows)
        codes = np.frombuffer(rest, np.uint8, rows * columns, offset=largest.nbytes)
        unit = largest[:, None] / np.float32(_STEPS)
        return cls(number, receivers, contributors, codes.reshape(rows, columns) * unit)


def read_frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the frame of each round, up to a frame that is cut off or damaged."""
    try:
        file = open(path, "rb")  # noqa: SIM115 (a missing file has no frames)
    except OSError:
        return
    with file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, expected, number = _HEAD.unpack(head)
            content = file.read(length)
            if len(content) < length or _checksum(number, content) != expected:
                return
            yield number, head + content


def _checksum(number: int, content: bytes) -> int:
    return zlib.crc32(content, number)
