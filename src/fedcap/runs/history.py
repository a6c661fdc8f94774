"""The records of a run's rounds, in memory or in a temporary file.

The size of a record follows the number of its participants and tested clients. Up to `IN_MEMORY` bytes, the
records of a run are objects in memory. Beyond that they are lines of JSON in a temporary file, and each is
read when it is used. So the memory of a long run with many participants does not grow with its rounds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, BinaryIO, cast, overload

from fedcap.files import IN_MEMORY
from fedcap.runs.rounds import RoundRecord

ENTRY_BYTES = 500
"""About the memory of one participant or one tested client in a record."""


class History(Sequence[RoundRecord]):
    """The records of a run, in the order of the rounds; `append` adds one."""

    def __init__(self, records: Iterable[RoundRecord] = ()) -> None:
        self._records: list[RoundRecord] = []
        self._entries = 0
        self._file: BinaryIO | None = None
        """The file; None while the records are in memory."""
        self._offsets = [0]
        """In the file, where each line begins, and where the last one ends."""
        self._last: RoundRecord | None = None
        for record in records:
            self.append(record)

    def append(self, record: RoundRecord) -> None:
        """Add the record of the next round."""
        self._last = record
        if self._file is not None:
            self._write(record)
            return
        self._records.append(record)
        tested = 0 if record.accuracy is None else len(record.accuracy.clients)
        self._entries += len(record.participants) + tested
        if self._entries * ENTRY_BYTES > IN_MEMORY:
            records, self._records = self._records, []
            self._file = cast(BinaryIO, tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
            for held in records:
                self._write(held)

    def _write(self, record: RoundRecord) -> None:
        assert self._file is not None
        line = record.to_json().encode()
        self._file.write(line)
        self._offsets.append(self._offsets[-1] + len(line))

    def _read(self, start: int, stop: int) -> RoundRecord:
        assert self._file is not None
        return RoundRecord.from_json(os.pread(self._file.fileno(), stop - start, start).decode())

    def __len__(self) -> int:
        return len(self._records) if self._file is None else len(self._offsets) - 1

    def __iter__(self) -> Iterator[RoundRecord]:
        if self._file is None:
            return iter(self._records)
        return (self._read(start, stop) for start, stop in pairwise(self._offsets))

    @overload
    def __getitem__(self, at: int) -> RoundRecord: ...
    @overload
    def __getitem__(self, at: slice) -> list[RoundRecord]: ...
    def __getitem__(self, at: int | slice) -> RoundRecord | list[RoundRecord]:
        if self._file is None:
            return self._records[at]
        if isinstance(at, slice):
            return [self[place] for place in range(*at.indices(len(self)))]
        place = range(len(self))[at]
        if place == len(self) - 1 and self._last is not None:
            return self._last
        return self._read(*self._offsets[place : place + 2])

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Sequence) or len(self) != len(other):
            return NotImplemented if not isinstance(other, Sequence) else False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<the records of {len(self)} rounds>"

    def __reduce__(self) -> tuple[Any, ...]:
        return History, (list(self),)
