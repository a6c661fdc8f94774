"""Where the cells of grids are kept: a run's directory for each, and apart from them the failures.

    root/cells/<name>/          the run's directory, with its outcome.json once it has finished
    root/failed/<name>.json     why a cell failed; beside it, a run that was damaged and played anew

A second folder, `results`, may hold outcomes as small files, `<name>.json`: those of a repository. A cell's
name is the start of its digest, so grids that have cells in common share them.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fedcap.experiments.cells import Cell
from fedcap.files import write_aside
from fedcap.records import CHECKPOINT, RESULT, Outcome, read
from fedcap.registry import InputError
from fedcap.simulation import COMPUTES

OUTCOME = "outcome.json"


@dataclass(frozen=True)
class Failure:
    """Why a cell failed."""

    name: str
    place: Mapping[str, str]
    why: str
    """One line."""
    where: str = ""
    """The traceback, if there is one."""
    anew: bool = False
    """Whether a retry must begin anew: what the run left behind is of no use."""


_FAILURE: TypeAdapter[Failure] = TypeAdapter(Failure)


class CellStore:
    """The finished, begun and failed cells in a folder."""

    def __init__(
        self, root: Path | str, results: Path | str | None = None, keep_models: bool = False
    ) -> None:
        self.root = Path(root)
        self.results = None if results is None else Path(results)
        self.keep_models = keep_models
        """Whether finished cells keep their checkpoint, which holds all models."""

    def open(self) -> None:
        """Create the folders; if that cannot be done, raise an `InputError` of one line."""
        try:
            for name in ("cells", "failed"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
            if not os.access(self.root / "cells", os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise InputError(f"cannot write to {self.root}: {error.strerror}; give another --out") from None

    def directory(self, cell: Cell) -> Path:
        """Return where a cell's run is kept."""
        return self.root / "cells" / cell.name

    def outcome(self, cell: Cell) -> Outcome | None:
        """Return what a cell came to; none if it has not finished."""
        found = self._of_run(self.directory(cell))
        if found is None and self.results is not None:
            found = _read_outcome(self.results / f"{cell.name}.json")
        return found if found is not None and found.digest.startswith(cell.name) else None

    def outcomes(self) -> Mapping[str, Outcome]:
        """Return the outcomes of all finished cells, whatever grid they are of, by their `key`.

        Those that an older version came to, which computed something else, are left out: they would be played
        again. Of equal settings a run's outcome goes before that in `results`.
        """
        current = (found for found in self._all() if found.provenance.get("computes") == COMPUTES)
        return {outcome.key: outcome for outcome in current}

    def _all(self) -> Iterator[Outcome]:
        for path in sorted(self.results.glob("*.json")) if self.results is not None else ():
            yield _read_outcome(path)  # type: ignore[misc]
        for path in sorted((self.root / "cells").glob("*")):
            if (found := self._of_run(path)) is not None:
                yield found

    def _of_run(self, directory: Path) -> Outcome | None:
        """Return the outcome of a run, if it has one and all of its files are in order."""
        with suppress(InputError):
            if (found := _read_outcome(directory / OUTCOME)) is not None:
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
        return self.root / "failed" / f"{cell.name}.json"

    def failure(self, cell: Cell) -> Failure | None:
        """Return why a cell failed; none if it did not."""
        path = self._failed(cell)
        try:
            return _FAILURE.validate_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValidationError:
            return Failure(cell.name, cell.place, f"{path} is damaged and does not say why", anew=True)

    def fail(self, cell: Cell, why: str, where: str = "", anew: bool = False) -> None:
        """Write down why a cell failed."""
        path = self._failed(cell)
        failure = Failure(cell.name, dict(cell.place), why, where, anew)
        write_aside(path, json.dumps(asdict(failure), indent=2, ensure_ascii=False))

    def forget(self, cell: Cell) -> None:
        """Let a cell that failed be tried again; a run that cannot go on is moved to the failures."""
        failure, directory = self.failure(cell), self.directory(cell)
        if failure is not None and failure.anew and directory.exists():
            apart = self._failed(cell).with_suffix("")
            shutil.rmtree(apart, ignore_errors=True)
            directory.rename(apart)
        self._failed(cell).unlink(missing_ok=True)


def _read_outcome(path: Path) -> Outcome | None:
    """Read an outcome; none if there is no such file."""
    try:
        return Outcome.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise InputError(f"{path} is damaged: it is no text") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except InputError as error:
        raise InputError(f"{path} is {error}") from None
