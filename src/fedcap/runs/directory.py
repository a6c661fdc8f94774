"""Checksums: of a checkpoint's tensors, and of a file's lines, each with all lines before it.

They tell damage, and changes by hand; nothing protects from somebody who computes them anew. CRC-32 takes
less than a millisecond for a megabyte on any machine, a small part of what it takes to write one.

A run's directory: config.toml, provenance.json, rounds.jsonl, checkpoint.safetensors, result.json.

Every file but rounds.jsonl is written to a temporary file and renamed; rounds.jsonl grows by a line per
round, each with a checksum of itself and of the lines before it, and mixing.bin, before it, by a frame. A
line is on disk when `append` returns, so a checkpoint written afterwards never includes a round without a
line. Whenever a run is killed, the lines up to its checkpoint's round are complete; a resumed run drops the
later ones with `rewrite_rounds`.

Whether the files of a run belong together. What does not is an error of one line that says what to do.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
import fcntl
import os
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import IO
from typing import Any
from typing import Self
from typing import TypeVar
from pydantic import ValidationError
from fedcap.errors import InputError
from fedcap.files import write_aside
from fedcap.runs.mixing import MIXING
from fedcap.runs.mixing import Mixing
from fedcap.runs.mixing import read_frames
from fedcap.runs.provenance import Provenance
from fedcap.runs.result import Result
from fedcap.runs.rounds import RoundRecord
from fedcap.runs.settings import Settings
from fedcap.runs.settings import read_toml
from fedcap.runs.settings import to_toml
from fedcap.runs.result import summarise

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


CONFIG, PROVENANCE, ROUNDS = "config.toml", "provenance.json", "rounds.jsonl"
CHECKPOINT, RESULT = "checkpoint.safetensors", "result.json"
LOCK = ".lock"

T = TypeVar("T")


class BusyError(InputError):
    """Another process is running in the directory."""


class RunDirectory:
    """Reads and writes the files of one run. Writing needs its lock: `with RunDirectory(path):`."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock: IO[str] | None = None
        self._last: str | None = None
        """The checksum of the last line of rounds.jsonl, once it is known."""

    def __enter__(self) -> Self:
        """Create the directory, lock it for this process, and remove temporary files of a killed one."""
        try:
            self._create()
            self._lock = open(self.path / LOCK, "a")  # not "w": a link would have its target emptied
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for stale in self.path.glob(".*.partial"):
                stale.unlink()
        except OSError as error:
            self._release()
            if isinstance(error, BlockingIOError):
                raise BusyError(
                    f"another process is running in {self.path}: wait until it ends, or give another directory", code="busy", field=str(self.path)) from None
            raise InputError(f"cannot write to {error.filename or self.path}: {error.strerror}", code="cannot-write", field=str(error.filename or self.path)) from None
        self._last = None
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _create(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    @property
    def is_new(self) -> bool:
        """Whether the directory has yet to be created."""
        return not self.path.exists()

    @property
    def checkpoint(self) -> Path:
        """Where the last checkpoint is."""
        return self.path / CHECKPOINT

    def settings(self) -> Settings | None:
        """Read the run's settings; none if there is no run."""
        path = self.path / CONFIG
        return (
            self._parsed(CONFIG, lambda: Settings.model_validate(read_toml(path))) if path.exists() else None
        )

    def provenance(self) -> Provenance | None:
        """Read the run's provenance; none before it has started."""
        text = self._text(PROVENANCE)
        return None if text is None else self._parsed(PROVENANCE, partial(Provenance.from_json, text))

    def lines(self) -> list[str]:
        """Read the rounds' lines; one that was cut off in mid-write is left out."""
        return (self._text(ROUNDS) or "").split("\n")[:-1]

    def rounds(self, first: int | None = None) -> list[RoundRecord]:
        """Read the records of all rounds, or the first so many, up to the last whole line.

        A line that was changed, or that is not where it was written, is an error.
        """
        return list(self.each_round(self._start(), first))

    def each_round(self, start: str | None, first: int | None = None) -> Iterator[RoundRecord]:
        """Yield the records, up to an error. `start` is the run's course; none if nobody knows it."""
        before = start
        for number, line in enumerate(self.lines()[:first], start=1):
            place = f"{ROUNDS}, line {number},"
            record = self._parsed(place, partial(RoundRecord.from_json, line))
            if record.round != number:
                raise self.damaged(place, f"is of round {record.round}: lines are missing, doubled or moved")
            if before is not None and not is_intact(line, before):
                raise self.damaged(place, "was changed, or is not of this run")
            yield record
            before = signature(line)

    def mixings(self, rounds: Collection[int] | None = None) -> list[Mixing]:
        """Read the weights that models were mixed with: of the rounds that have a line, or of these."""
        wanted = range(1, len(self.lines()) + 1) if rounds is None else rounds
        frames = [frame for at, frame in read_frames(self.path / MIXING) if at in wanted]
        return self._parsed(MIXING, lambda: [Mixing.from_frame(frame) for frame in frames])

    def _start(self) -> str:
        """Return what the first line's checksum follows: what the run is."""
        facts = self.provenance()
        return facts.course if facts else ""

    def result(self, history: Sequence[RoundRecord] | None = None) -> Result | None:
        """Read the result, with the rounds' records if not given; none before the run has finished."""
        text = self._text(RESULT)
        if text is None:
            return None
        history = self.rounds() if history is None else history
        result = self._parsed(RESULT, lambda: Result.from_json(text, history))
        if len(history) < result.rounds:
            raise self.damaged(ROUNDS, f"has {len(history)} of the {result.rounds} rounds in {RESULT}")
        if result.rounds != len(history):
            raise self.damaged(RESULT, f"counts {result.rounds} rounds, {ROUNDS} has {len(history)}")
        return result

    def _text(self, name: str) -> str | None:
        """Read a file; none if it is not there."""
        try:
            return (self.path / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.damaged(name, f"cannot be read: {error.strerror}") from None

    def _parsed(self, place: str, parse: Callable[[], T]) -> T:
        """Return what `parse` returns; if that fails, raise an error that names the place."""
        try:
            return parse()
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            why = f"cannot be read: {f'{where}: ' * bool(where)}{first['msg']}"
        except InputError as error:  # names the file already
            raise self._unusable(place, str(error)) from None
        except (ValueError, TypeError, RecursionError) as error:
            why = f"cannot be read: {error}"
        raise self.damaged(place, why)

    def damaged(self, place: str, why: str) -> InputError:
        """Return the error for a file of the run that cannot be used: one line, with what to do."""
        return self._unusable(place, f"{self.path / place} {why}")

    def _unusable(self, place: str, message: str) -> InputError:
        if place == RESULT:
            remedy = "remove it and resume the run to write it again"
            return InputError(f"{message}; {remedy}", code="damaged-result", field=str(self.path))
        if place == CONFIG:
            remedy = "the run cannot continue without it: start a new run in another directory"
            return InputError(f"{message}; {remedy}", code="damaged-config", field=str(self.path))
        remedy = "repeat the run in a new directory"
        return InputError(f"{message}; {remedy}", code="damaged-run", field=str(self.path / CONFIG))

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write config.toml."""
        write_aside(self.path / CONFIG, to_toml(settings))

    def write_provenance(self, provenance: Provenance) -> None:
        """Write provenance.json."""
        write_aside(self.path / PROVENANCE, provenance.to_json())

    def append(self, record: RoundRecord, mixing: Mixing | None = None) -> None:
        """Append a round's line, and before it the weights of its mixtures, and flush them to disk."""
        if self._last is None:
            lines = self.lines()
            self._last = signature(lines[-1]) if lines else self._start()
        line = signed(record.to_json(), self._last)
        if mixing is not None:
            self._add(MIXING, mixing.to_frame())
        self._add(ROUNDS, f"{line}\n".encode())
        self._last = signature(line)

    def _add(self, name: str, content: bytes) -> None:
        with open(self.path / name, "ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def rewrite_rounds(self, lines: Sequence[str]) -> None:
        """Keep these lines of rounds.jsonl, and no others; of mixing.bin, what is of the same rounds."""
        write_aside(self.path / ROUNDS, "".join(line + "\n" for line in lines))
        self._last = None
        path = self.path / MIXING
        if path.exists():
            kept = (frame for number, frame in read_frames(path) if number <= len(lines))
            write_aside(path, b"".join(kept))

    def write_result(self, result: Result) -> None:
        """Write result.json: the run has finished."""
        write_aside(self.path / RESULT, result.to_json())

    def remove_result(self) -> None:
        """Remove result.json, if there is one: the run goes on."""
        (self.path / RESULT).unlink(missing_ok=True)


class NewDirectory(RunDirectory):
    """A directory that is created when it is entered: `parent/name`, or `parent/name+2`, … if it is taken.

    No two processes get the same one. `path` is known once it is entered.
    """

    def __init__(self, parent: Path | str, name: str) -> None:
        super().__init__(Path(parent) / name)
        self._is_new = True

    @property
    def is_new(self) -> bool:
        """Whether the directory has yet to be created, whatever there is at `path` now."""
        return self._is_new

    def _create(self) -> None:
        wanted = self.path
        wanted.parent.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            self.path = wanted if number == 1 else wanted.with_name(f"{wanted.name}+{number}")
            try:
                self.path.mkdir()
            except FileExistsError:
                continue
            self._is_new = False
            return


def checked_provenance(directory: RunDirectory, settings: Settings) -> Provenance | None:
    """Return the provenance of the run with these settings, as config.toml has them; none if not started."""
    facts = directory.provenance()
    if facts is None:
        if any((directory.path / name).exists() for name in (ROUNDS, CHECKPOINT, RESULT)):
            raise directory.damaged(PROVENANCE, "is missing")
        return None
    mine = facts.of(settings.digest())
    if mine is None:
        config = directory.path / CONFIG
        raise InputError(
            f"{config} was changed since the run began: it no longer has the digest that {PROVENANCE} knows;"
            f" start a new run with it instead", code="changed-config", field=str(config))
    return mine


def checked_rounds(directory: RunDirectory, settings: Settings) -> list[RoundRecord]:
    """Return the records of the rounds played so far."""
    history = directory.rounds()
    if len(history) > settings.rounds:
        raise directory.damaged(ROUNDS, f"has {len(history)} rounds, {CONFIG} only {settings.rounds}")
    return history


def checked_result(directory: RunDirectory, settings: Settings, facts: Provenance) -> Result | None:
    """Return the result, if it follows from the rounds; none if the run has not finished."""
    result = directory.result()
    if result is None or result.rounds in (shorter.rounds for shorter in facts.extended):
        return None
    if result.stopped is None and result.rounds != settings.rounds:
        raise directory.damaged(RESULT, f"counts {result.rounds} rounds, {CONFIG} {settings.rounds}")
    detects = result.fpr is not None
    try:
        expected = summarise(result.history, facts.clients, facts.malicious, detects)
    except ValueError as error:
        raise directory.damaged(ROUNDS, f"has no result: {error}") from None
    if expected != result:
        raise directory.damaged(RESULT, f"is not the result of the rounds in {ROUNDS}")
    return result
