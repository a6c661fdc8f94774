"""Where the cells of grids are kept: a run's directory for each, and apart from them the failures.

The layout is that of `records.cells`. A cell's name is the start of its digest, so grids that have cells in
common share them. Outcomes without their runs count too: those of `results`, a repository's folder of
small files, and of whatever else is known (`published`).
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fedcap.errors import InputError
from fedcap.experiments.cells import Cell
from fedcap.experiments.published import Published, single_outcomes
from fedcap.files import write_aside
from fedcap.runs import CHECKPOINT, RESULT, Outcome, read
from fedcap.runs.outcome import CELLS, FAILED, OUTCOME, PLANNED, Failure, read_failure, read_outcome
from fedcap.simulation import COMPUTES


class CellStore:
    """The finished, begun and failed cells in a folder."""

    def __init__(
        self,
        root: Path | str,
        results: Path | str | None = None,
        keep_models: bool = False,
        known: Path | str | None = None,
    ) -> None:
        self.root = Path(root)
        self.results = None if results is None else Path(results)
        """A folder that has outcomes, and is given those of the cells that are played."""
        self.keep_models = keep_models
        """Whether finished cells keep their checkpoint, which holds all models."""
        self._published = Published(self.results, None if known is None else Path(known))

    def open(self) -> None:
        """Create the folders; if that cannot be done, raise an `InputError` of one line."""
        try:
            for name in (CELLS, FAILED):
                (self.root / name).mkdir(parents=True, exist_ok=True)
            if not os.access(self.root / CELLS, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise InputError(f"cannot write to {self.root}: {error.strerror}; give another --out") from None

    def plan(self, cells: Sequence[Cell]) -> None:
        """Write down which cells are to be played, so that whoever watches knows how many are to come."""
        write_aside(self.root / PLANNED, json.dumps([cell.name for cell in cells]))

    def directory(self, cell: Cell) -> Path:
        """Return where a cell's run is kept."""
        return self.root / CELLS / cell.name

    def outcome(self, cell: Cell) -> Outcome | None:
        """Return what a cell came to; none if it has not finished."""
        found = self._of_run(self.directory(cell))
        if found is not None:
            return found if found.digest.startswith(cell.name) else None
        return self._published.outcome(cell)

    def outcomes(self) -> Mapping[str, Outcome]:
        """Return the outcomes of all finished cells, whatever grid they are of, by their `key`.

        Those that an older version came to, which computed something else, are left out: they would be played
        again. Of equal settings a run's outcome goes before that in `results`.
        """
        current = (found for found in self._all() if found.provenance.get("computes") == COMPUTES)
        return {outcome.key: outcome for outcome in current}

    def _all(self) -> Iterator[Outcome]:
        if self.results is not None:
            yield from single_outcomes(self.results)
        for path in sorted((self.root / CELLS).glob("*")):
            if (found := self._of_run(path)) is not None:
                yield found

    def _of_run(self, directory: Path) -> Outcome | None:
        """Return the outcome of a run, if it has one and all of its files are in order."""
        with suppress(InputError):
            if (found := read_outcome(directory / OUTCOME)) is not None:
                return found
        with suppress(InputError):
            if (directory / RESULT).exists():
                return Outcome.of(read(directory))
        return None

    def save(self, cell: Cell) -> Outcome:
        """Write down what a cell whose run has finished came to, and drop its models unless they are kept."""
        directory = self.directory(cell)
        outcome = Outcome.of(read(directory))
        write_aside(directory / OUTCOME, outcome.to_json())
        if self.results is not None:
            self.results.mkdir(parents=True, exist_ok=True)
            write_aside(self.results / f"{cell.name}.json", outcome.to_json())
        if not self.keep_models:
            (directory / CHECKPOINT).unlink(missing_ok=True)
        self._failed(cell).unlink(missing_ok=True)
        return outcome

    def _failed(self, cell: Cell) -> Path:
        return self.root / FAILED / f"{cell.name}.json"

    def failure(self, cell: Cell) -> Failure | None:
        """Return why a cell failed; none if it did not."""
        found = read_failure(self._failed(cell))
        return None if found is None else replace(found, place=found.place or cell.place)

    def fail(self, cell: Cell, why: str, where: str = "", anew: bool = False) -> None:
        """Write down why a cell failed."""
        failure = Failure(cell.name, dict(cell.place), why, where, anew)
        write_aside(self._failed(cell), failure.to_json())

    def forget(self, cell: Cell) -> None:
        """Let a cell that failed be tried again; a run that cannot go on is moved to the failures."""
        failure, directory = self.failure(cell), self.directory(cell)
        if failure is not None and failure.anew and directory.exists():
            apart = self._failed(cell).with_suffix("")
            shutil.rmtree(apart, ignore_errors=True)
            directory.rename(apart)
        self._failed(cell).unlink(missing_ok=True)
