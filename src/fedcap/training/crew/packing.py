"""The named tensors that a client keeps, as one row of a matrix.

Many clients' tensors are then one matrix, J×P, which can lie in shared memory: a row is a client, and its
first P numbers are the tensors one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fedcap.state import Tensors
from fedcap.training.bench import Job, Work, shapes


@dataclass(frozen=True)
class Packing:
    """Which tensors lie in a row, in order: their names and shapes."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, keeps: Sequence[Tensors]) -> Packing:
        """Return the packing for clients that all keep tensors of the same names and shapes."""
        expected = shapes(keeps[0]) if keeps else {}
        for kept in keeps:
            if shapes(kept) != expected:
                raise ValueError(f"clients should all keep {expected} (got {shapes(kept)})")
        return cls(tuple(expected), tuple(expected.values()))

    @property
    def size(self) -> int:
        """How many numbers a row holds, P."""
        return sum(math.prod(shape) for shape in self.shapes)

    def unpack(self, row: Tensor) -> dict[str, Tensor]:
        """Return the tensors of a row, as views of it."""
        tensors, start = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            stop = start + math.prod(shape)
            tensors[name] = row[start:stop].view(shape)
            start = stop
        return tensors

    def pack(self, kept: Tensors, row: Tensor) -> None:
        """Copy the tensors into a row."""
        for name, place in self.unpack(row).items():
            place.copy_(kept[name])

    def store(self, work: Work, update: Tensor, kept: Tensor) -> None:
        """Copy what a job made into its two rows; if it made no update, that row is set to zeros."""
        if work.update is None:
            update.zero_()
        else:
            update.copy_(work.update)
        if work.kept is not None:
            self.pack(work.kept, kept)

    def keeps(self, jobs: Sequence[Job], before: Sequence[Tensors], rows: Tensor) -> list[Tensors]:
        """Return what each job's client keeps: its row if it has trained, what it kept before otherwise."""
        return [
            self.unpack(row) if job.kind == "train" else kept
            for job, kept, row in zip(jobs, before, rows, strict=True)
        ]
