"""A run's directory: config.toml, provenance.json, rounds.jsonl, checkpoint.safetensors, result.json.

Every file but rounds.jsonl is written to a temporary file and renamed; rounds.jsonl grows by a line per
round. A line is on disk when `append` returns, so a checkpoint written afterwards never includes a round
without a line. Whenever a run is killed, the lines up to its checkpoint's round are complete; a resumed run
drops the later ones with `rewrite_rounds`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any, Self, TypeVar

from pydantic import ValidationError

from fedcap.files import write_aside
from fedcap.records.provenance import Provenance
from fedcap.records.result import Result
from fedcap.records.rounds import RoundRecord
from fedcap.records.settings import Settings
from fedcap.records.toml import read_toml, to_toml
from fedcap.registry import InputError

CONFIG, PROVENANCE, ROUNDS = "config.toml", "provenance.json", "rounds.jsonl"
CHECKPOINT, RESULT = "checkpoint.safetensors", "result.json"
LOCK = ".lock"

A = TypeVar("A")
T = TypeVar("T")


class RunDirectory:
    """Reads and writes the files of one run. Writing needs its lock: `with RunDirectory(path):`."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock: IO[str] | None = None

    def __enter__(self) -> Self:
        """Create the directory, lock it for this process, and remove temporary files of a killed one."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / LOCK, "w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for stale in self.path.glob(".*.partial"):
                stale.unlink()
        except OSError as error:
            self._release()
            if isinstance(error, BlockingIOError):
                raise InputError(f"another process is running in {self.path}") from None
            raise InputError(f"cannot write to {self.path}: {error.strerror}") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def checkpoint(self) -> Path:
        """Where the last checkpoint is."""
        return self.path / CHECKPOINT

    def settings(self) -> Settings | None:
        """Read the run's settings; none if there is no run."""
        path = self.path / CONFIG
        return _told(path, Settings.model_validate, read_toml(path)) if path.exists() else None

    def provenance(self) -> Provenance | None:
        """Read the run's provenance; none before it has started."""
        text = self._text(PROVENANCE)
        return None if text is None else _told(self.path / PROVENANCE, Provenance.from_json, text)

    def lines(self) -> list[str]:
        """Read the rounds' lines; one that was cut off in mid-write is left out."""
        return (self._text(ROUNDS) or "").split("\n")[:-1]

    def rounds(self) -> list[RoundRecord]:
        """Read the rounds' records, up to the last whole line."""
        return [
            _told(f"{self.path / ROUNDS}, line {number},", RoundRecord.from_json, line)
            for number, line in enumerate(self.lines(), start=1)
        ]

    def result(self) -> Result | None:
        """Read the result, with the rounds' records; none before the run has finished."""
        text = self._text(RESULT)
        if text is None:
            return None
        history = self.rounds()
        result = _told(self.path / RESULT, partial(Result.from_json, history=history), text)
        if result.rounds != len(history):
            raise InputError(
                f"{self.path} is damaged: {ROUNDS} has {len(history)} rounds, {RESULT} counts {result.rounds}"
            )
        return result

    def _text(self, name: str) -> str | None:
        """Read a file; none if it is not there."""
        try:
            return (self.path / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"cannot read {self.path / name}: {error.strerror}") from None

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write config.toml."""
        write_aside(self.path / CONFIG, to_toml(settings))

    def write_provenance(self, provenance: Provenance) -> None:
        """Write provenance.json."""
        write_aside(self.path / PROVENANCE, provenance.to_json())

    def append(self, record: RoundRecord) -> None:
        """Append a round's line, and flush it to disk."""
        with open(self.path / ROUNDS, "a") as file:
            file.write(record.to_json() + "\n")
            file.flush()
            os.fsync(file.fileno())

    def rewrite_rounds(self, lines: Iterable[str]) -> None:
        """Keep these lines of rounds.jsonl, and no others."""
        write_aside(self.path / ROUNDS, "".join(line + "\n" for line in lines))

    def write_result(self, result: Result) -> None:
        """Write result.json: the run has finished."""
        write_aside(self.path / RESULT, result.to_json())


def _told(place: Path | str, parse: Callable[[A], T], content: A) -> T:
    """Return `parse(content)`; if that fails, raise an `InputError` of one line that names the place."""
    try:
        return parse(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{place} cannot be read: {f'{where}: ' * bool(where)}{first['msg']}") from None
    except (ValueError, TypeError) as error:
        raise InputError(f"{place} cannot be read: {error}") from None
