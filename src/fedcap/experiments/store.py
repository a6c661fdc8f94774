"""The folder of a grid, the status of its cells, and files of outcomes for a repository.

The layout of the folder is described in `fedcap.runs.outcome`. A cell's name is the start of its digest, so
grids in one folder share the cells that they have in common. Outcomes without their runs count as finished
too: those of a folder `results`, and those of a file or folder that is reused. A saved file of outcomes
(`save_outcomes`) has one JSON line per cell, gzipped if its name ends in `.gz`.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open

from fedcap.errors import InputError
from fedcap.files import write_aside
from fedcap.report.panel import Finished
from fedcap.runs import CHECKPOINT, RESULT, Curve, Evidence, Outcome, Place, finite, read, settings_key
from fedcap.runs.outcome import (
    CELLS,
    FAILED,
    OUTCOME,
    CellFailure,
    read_failure,
    read_outcome,
    read_planned,
    write_planned,
)
from fedcap.simulation import COMPUTES, Experiment
from fedcap.simulation.store import STATES, client_states

if TYPE_CHECKING:
    from fedcap.experiments.grid import Cell


class CellStore:
    """The finished, started and failed cells in a grid's folder."""

    def __init__(
        self,
        root: Path | str,
        results: Path | str | None = None,
        keep_models: bool = False,
        reuse: Path | str | Sequence[Path | str] = (),
    ) -> None:
        self.root = Path(root)
        self.results = None if results is None else Path(results)
        """A folder of outcomes, one file each: its outcomes count, and those of new cells are added to it."""
        self.keep_models = keep_models
        """Whether finished cells keep their checkpoint, which holds all models."""
        self.reuse = [Path(place) for place in ([reuse] if isinstance(reuse, Path | str) else reuse)]
        """Files of saved outcomes, or folders with outcomes, that count as finished."""

    def __getstate__(self) -> dict[str, Any]:
        """Go to worker processes without the outcomes that were read: workers get only what is left."""
        return {name: value for name, value in vars(self).items() if name != "_by_key"}

    def open(self) -> None:
        """Create the folders; if that is not possible, raise an `InputError` of one line."""
        try:
            for name in (CELLS, FAILED):
                (self.root / name).mkdir(parents=True, exist_ok=True)
            if not os.access(self.root / CELLS, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise InputError(
                f"cannot write to {self.root}: {error.strerror}; give another folder",
                code="cannot-write",
                field=str(self.root),
            ) from None

    def directory(self, cell: Cell) -> Path:
        """Return the directory of a cell's run."""
        return self.root / CELLS / cell.name

    def outcome(self, cell: Cell) -> Outcome | None:
        """Return the outcome of a cell; none if it has not finished."""
        found = _outcome_of_run(self.directory(cell))
        if found is not None:
            return found if found.digest.startswith(cell.name) else None
        if self.results is not None:  # by its name first: another process may have added it since
            found = read_outcome(self.results / f"{cell.name}.json")
            if found is not None and _is_outcome_of(found, cell):
                return found
        if not self._by_key:
            return None
        return next((found for found in self._by_key.get(cell.key, []) if _is_outcome_of(found, cell)), None)

    @cached_property
    def _by_key(self) -> Mapping[str, list[Outcome]]:
        """All outcomes of `results` and `reuse`, by the key that their settings have in this version."""
        found: dict[str, list[Outcome]] = {}
        for place in filter(None, (self.results, *self.reuse)):
            for outcome in read_any_outcomes(place):
                found.setdefault(settings_key(current_settings(outcome.settings)), []).append(outcome)
        return found

    def outcomes(self) -> Mapping[str, Outcome]:
        """Return the outcomes of all finished cells of any grid, by their `key`.

        Outcomes of older versions that computed something else are left out. Of equal settings, the outcome
        of a run replaces the one in `results`.
        """
        every = [] if self.results is None else list(_read_files(self.results.glob("*.json")))
        runs = map(_outcome_of_run, sorted((self.root / CELLS).glob("*")))
        every += [outcome for outcome in runs if outcome is not None]
        return {outcome.key: outcome for outcome in every if outcome.provenance.get("computes") == COMPUTES}

    def save(self, cell: Cell, evidence: Evidence | None = None) -> Outcome:
        """Write the outcome of a cell whose run has finished; remove its models unless they are kept.

        `evidence` is that of this machine, just now, unless given.
        """
        directory = self.directory(cell)
        checkpoint = directory / CHECKPOINT
        if evidence is None and checkpoint.exists():
            evidence = Evidence.now(hash_weights(checkpoint))
        outcome = replace(Outcome.of(read(directory)), evidence=evidence)
        places = read_planned(self.root).get(cell.name) or [dict(cell.place)]
        write_aside(directory / OUTCOME, replace(outcome, places=places).to_json())
        if self.results is not None:
            save_results([outcome], self.results, overwrite=True)
        if not self.keep_models:
            checkpoint.unlink(missing_ok=True)
            (directory / STATES).unlink(missing_ok=True)
        self._failure_path(cell).unlink(missing_ok=True)
        return outcome

    def failure(self, cell: Cell) -> CellFailure | None:
        """Return why a cell failed; none if it did not."""
        found = read_failure(self._failure_path(cell))
        return None if found is None else replace(found, place=found.place or cell.place)

    def fail(self, cell: Cell, why: str, where: str = "", anew: bool = False) -> None:
        """Write why a cell failed."""
        failure = CellFailure(cell.name, dict(cell.place), why, where, anew)
        write_aside(self._failure_path(cell), failure.to_json())

    def forget(self, cell: Cell) -> None:
        """Allow another try of a cell that failed; a run that cannot continue is moved to the failures."""
        failure, directory = self.failure(cell), self.directory(cell)
        if failure is not None and failure.anew and directory.exists():
            apart = self._failure_path(cell).with_suffix("")
            shutil.rmtree(apart, ignore_errors=True)
            directory.rename(apart)
        self._failure_path(cell).unlink(missing_ok=True)

    def _failure_path(self, cell: Cell) -> Path:
        return self.root / FAILED / f"{cell.name}.json"


def _outcome_of_run(directory: Path) -> Outcome | None:
    """Return the outcome of a run, if it has finished and its files are intact."""
    with suppress(InputError):
        if (found := read_outcome(directory / OUTCOME)) is not None:
            return found
    with suppress(InputError):
        if (directory / RESULT).exists():
            return Outcome.of(read(directory))
    return None


def _is_outcome_of(outcome: Outcome, cell: Cell) -> bool:
    """Whether a run of the recorded settings with the cell's data, code and version has this outcome."""
    return outcome.digest == cell.experiment.digest(outcome.settings)


def current_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return recorded settings with the defaults of options that are newer than the record.

    Such a default does not change results. Settings that this version does not accept stay as they are.
    """
    try:
        return Experiment(**settings).settings()
    except InputError:
        return settings


def hash_weights(checkpoint: Path) -> str:
    """Return the SHA-256 of all floating-point tensors of a checkpoint, in the order of their names."""
    digest = hashlib.sha256()
    with safe_open(checkpoint, framework="pt") as file:
        states = client_states(file, checkpoint.parent)
        of_clients = {} if states is None else {f"clients.kept.{name}": name for name in states.shapes}
        for name in sorted([*file.keys(), *of_clients]):
            if states is not None and name in of_clients:
                shape = [len(states.rows), *states.shapes[of_clients[name]]]
                digest.update(f"{torch.float32} {shape}".encode())
                for client in states.rows:
                    digest.update(states.read(client)[of_clients[name]].numpy().data)
                continue
            tensor = file.get_tensor(name)
            if tensor.is_floating_point():
                digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
                digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()


# --- The status of a grid


@dataclass(frozen=True)
class GridStatus:
    """The cells of a grid: which are finished, which failed, which are left. One name is one run."""

    cells: Sequence[Cell]
    done: Mapping[str, Outcome]
    """By the cells' names."""
    failed: Mapping[str, CellFailure]

    @classmethod
    def of(cls, cells: Sequence[Cell], store: CellStore) -> GridStatus:
        """Look the cells up in a store."""
        names = {cell.name: cell for cell in cells}
        outcomes = {name: store.outcome(cell) for name, cell in names.items()}
        done = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
        failures = {name: store.failure(cell) for name, cell in names.items() if name not in done}
        return cls(cells, done, {name: failure for name, failure in failures.items() if failure is not None})

    @property
    def runs(self) -> Sequence[Cell]:
        """One cell of each name."""
        return list({cell.name: cell for cell in self.cells}.values())

    @property
    def left(self) -> Sequence[Cell]:
        """The runs that are neither finished nor failed."""
        return [cell for cell in self.runs if cell.name not in self.done and cell.name not in self.failed]

    @property
    def finished(self) -> Finished:
        """The places and outcomes of the finished cells."""
        return [(cell.place, self.done[cell.name]) for cell in self.cells if cell.name in self.done]


def prepare(cells: Sequence[Cell], store: CellStore, retry: bool = False) -> GridStatus:
    """Create the store's folders, write the planned places there, and return the status of the cells.

    With `retry`, cells that failed are left again.
    """
    planned: dict[str, list[Place]] = {}
    for cell in cells:  # missing data is reported here, before there is a folder
        planned.setdefault(cell.name, []).append(cell.place)
    status = GridStatus.of(cells, store)  # so are damaged outcomes that are reused
    store.open()
    if retry and status.failed:
        for cell in status.runs:
            if cell.name in status.failed:
                store.forget(cell)
        status = GridStatus.of(cells, store)
    # An outcome that is reused has no run in the folder: such a cell is neither there nor to come.
    here = (cell for cell in status.runs if cell.name not in status.done or store.directory(cell).exists())
    write_planned(store.root, {cell.name: planned[cell.name] for cell in here})
    return status


# --- Files of outcomes


def save_results(outcomes: Iterable[Outcome], folder: Path, overwrite: bool = False) -> int:
    """Write outcomes into a folder, one file each, unless they are there; return how many were written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for outcome in outcomes:
        path = folder / f"{outcome.digest[:16]}.json"
        if overwrite or not path.exists():
            write_aside(path, outcome.to_json())
            written += 1
    return written


def save_outcomes(finished: Finished, path: Path) -> None:
    """Write the outcomes of a grid and their places into one file, without curves and norms."""
    lines = []
    for place, outcome in finished:
        brief = replace(outcome, curve=Curve([], [], []), norms=None, places=[dict(place)])
        lines.append(json.dumps(finite(asdict(brief)), ensure_ascii=False, separators=(",", ":")))
    content = "".join(f"{line}\n" for line in lines).encode()
    # No time and no file name in the header: equal outcomes give equal files.
    write_aside(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def read_outcomes(path: Path) -> Finished:
    """Read a file of saved outcomes: plain, gzipped, or in the format of older versions."""
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        lines = [json.loads(line) for line in content.decode().splitlines()]
        if lines and "digest" not in lines[0]:
            lines = _unfactored(*lines)
        outcomes = [Outcome.from_json(json.dumps(line)) for line in lines]
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}", code="missing-file", field=str(path)
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, EOFError):
        raise InputError(
            f"{path} is damaged, or is not a file of saved outcomes", code="bad-file", field=str(path)
        ) from None
    return [(place, outcome) for outcome in outcomes for place in outcome.places]


def _unfactored(common: Mapping[str, Any], *lines: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the lines of an older file, whose first line has what all of them have in common."""
    found = []
    for line in lines:
        whole = {name: _merged(line[name], common[name]) for name in ("settings", "provenance")}
        columns = line["clients"]
        clients = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        found.append({**line, **whole, "clients": clients, "places": [line["place"]]})
    return found


def _merged(table: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: _merged(value, common[key]) for key, value in table.items() if key in common}
    return {**common, **table, **both}


def read_any_outcomes(place: Path) -> Iterator[Outcome]:
    """Yield the outcomes of a saved file, of a grid's folder, or of a folder with files of either kind."""
    if place.is_file():
        yield from (outcome for _, outcome in read_outcomes(place))
    elif (place / CELLS).is_dir():
        yield from _read_files(place.glob(f"{CELLS}/*/{OUTCOME}"))
    else:
        yield from _read_files(place.glob("*.json"))
        for file in sorted([*place.glob("*.jsonl"), *place.glob("*.jsonl.gz")]):
            yield from read_any_outcomes(file)


def _read_files(paths: Iterable[Path]) -> Iterator[Outcome]:
    for path in sorted(paths):
        if (found := read_outcome(path)) is not None:
            yield found
