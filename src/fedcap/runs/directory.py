"""The directory of a run: the files of its settings, provenance, rounds, checkpoint and result.

rounds.jsonl grows by a line per round, and mixing.bin by a frame, which is written before the line. Each line
ends with a checksum of itself and of the lines before it, which detects damage and changes by hand; it does
not protect against someone who computes new checksums. The other files are written to a temporary file and
renamed.

A line is on disk when `append` returns, so a checkpoint that is written afterwards never includes a round
without a line. At whatever moment a run is killed, the lines up to the round of its checkpoint are complete;
a resumed run drops the later ones with `keep_rounds`. The functions `checked_…` read files and raise an
`InputError` of one line, with what to do, if they do not belong together.
"""

from __future__ import annotations

import fcntl
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import IO, Any, Self, TypeVar

from pydantic import ValidationError

from fedcap.errors import InputError
from fedcap.files import aside, write_aside
from fedcap.runs.history import History
from fedcap.runs.mixing import MIXING, Mixing, read_frames
from fedcap.runs.provenance import Provenance
from fedcap.runs.result import Result, summarise
from fedcap.runs.rounds import RoundRecord
from fedcap.runs.settings import Settings, read_toml, to_toml

CONFIG, PROVENANCE, ROUNDS = "config.toml", "provenance.json", "rounds.jsonl"
CHECKPOINT, RESULT = "checkpoint.safetensors", "result.json"
_LOCK = ".lock"

_T = TypeVar("_T")


class BusyError(InputError):
    """Another process has locked the directory."""


class RunDirectory:
    """Reads and writes the files of one run. Writing needs the lock: `with RunDirectory(path):`."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock: IO[str] | None = None
        self._last: str | None = None
        """The checksum of the last line of rounds.jsonl, or none before it is read."""

    def __enter__(self) -> Self:
        """Create the directory, lock it for this process, and remove temporary files of a killed process."""
        try:
            self._create()
            self._lock = open(self.path / _LOCK, "a")  # filelock refuses links; "w" would empty their targets
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for stale in self.path.glob(".*.partial"):
                stale.unlink()
        except OSError as error:
            self._release()
            if isinstance(error, BlockingIOError):
                raise BusyError(
                    f"another process is running in {self.path}: wait until it ends, or give another"
                    " directory",
                    code="busy",
                    field=str(self.path),
                ) from None
            raise InputError(
                f"cannot write to {error.filename or self.path}: {error.strerror}",
                code="cannot-write",
                field=str(error.filename or self.path),
            ) from None
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
        """The path of the checkpoint."""
        return self.path / CHECKPOINT

    def settings(self) -> Settings | None:
        """Read the settings of the run; return none if there is no run."""
        path = self.path / CONFIG
        return (
            self._parsed(CONFIG, lambda: Settings.model_validate(read_toml(path))) if path.exists() else None
        )

    def provenance(self) -> Provenance | None:
        """Read the provenance of the run; return none before it has started."""
        text = self._text(PROVENANCE)
        return None if text is None else self._parsed(PROVENANCE, partial(Provenance.from_json, text))

    def each_line(self) -> Iterator[str]:
        """Yield the complete lines of rounds.jsonl."""
        try:
            with open(self.path / ROUNDS, encoding="utf-8", errors="replace") as file:
                yield from (line[:-1] for line in file if line.endswith("\n"))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.damaged(ROUNDS, f"cannot be read: {error.strerror}") from None

    def rounds(self, first: int | None = None) -> History:
        """Read the records of all rounds, or of the `first` rounds, up to the last complete line.

        A line that was changed or moved is an error.
        """
        return History(self.each_round(self._first_checksum(), first))

    def each_round(self, start: str | None, first: int | None = None) -> Iterator[RoundRecord]:
        """Yield the records, up to an error. `start` is `Provenance.course`; none if it is unknown."""
        before = start
        for number, line in enumerate(islice(self.each_line(), first), start=1):
            place = f"{ROUNDS}, line {number},"
            record = self._parsed(place, partial(RoundRecord.from_json, line))
            if record.round != number:
                raise self.damaged(place, f"is of round {record.round}: lines are missing, doubled or moved")
            if before is not None and not _is_intact(line, before):
                raise self.damaged(place, "was changed, or is not of this run")
            yield record
            before = _signature(line)

    def mixings(self, rounds: Collection[int] | None = None) -> list[Mixing]:
        """Read the weights of these rounds, or of all rounds that have a line."""
        wanted = range(1, sum(1 for _ in self.each_line()) + 1) if rounds is None else rounds
        frames = [frame for at, frame in read_frames(self.path / MIXING) if at in wanted]
        return self._parsed(MIXING, lambda: [Mixing.from_frame(frame) for frame in frames])

    def _first_checksum(self) -> str:
        """Return the value that precedes the checksum of the first line: `Provenance.course`."""
        facts = self.provenance()
        return facts.course if facts else ""

    def result(self, history: Sequence[RoundRecord] | None = None) -> Result | None:
        """Read the result; return none before the run has finished. `history` saves reading the records."""
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
        """Read a file; return none if it does not exist."""
        try:
            return (self.path / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.damaged(name, f"cannot be read: {error.strerror}") from None

    def _parsed(self, place: str, parse: Callable[[], _T]) -> _T:
        """Return the value of `parse`; if it fails, raise an error that names the place."""
        try:
            return parse()
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            why = f"cannot be read: {f'{where}: ' * bool(where)}{first['msg']}"
        except InputError as error:  # it already names the file
            raise self._unusable(place, str(error)) from None
        except (ValueError, TypeError, RecursionError) as error:
            why = f"cannot be read: {error}"
        raise self.damaged(place, why)

    def damaged(self, place: str, why: str) -> InputError:
        """Return the error for a file of the run that cannot be used, with what to do."""
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
        """Append the line of a round, after the frame of its mixing weights, and flush both to disk."""
        if self._last is None:
            last = deque(self.each_line(), maxlen=1)
            self._last = _signature(last[0]) if last else self._first_checksum()
        line = _signed(record.to_json(), self._last)
        if mixing is not None:
            self._append_bytes(MIXING, mixing.to_frame())
        self._append_bytes(ROUNDS, f"{line}\n".encode())
        self._last = _signature(line)

    def _append_bytes(self, name: str, content: bytes) -> None:
        with open(self.path / name, "ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def keep_rounds(self, count: int) -> None:
        """Keep only the first `count` rounds in rounds.jsonl and mixing.bin."""
        with aside(self.path / ROUNDS) as partial, open(partial, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in islice(self.each_line(), count))
            file.flush()
            os.fsync(file.fileno())
        self._last = None
        path = self.path / MIXING
        if path.exists():
            kept = (frame for number, frame in read_frames(path) if number <= count)
            write_aside(path, b"".join(kept))

    def write_result(self, result: Result) -> None:
        """Write result.json, which marks the run as finished."""
        write_aside(self.path / RESULT, result.to_json())

    def remove_result(self) -> None:
        """Remove result.json, if it exists, because the run continues."""
        (self.path / RESULT).unlink(missing_ok=True)


class NewDirectory(RunDirectory):
    """A directory that is created on entry: `parent/name`, or `parent/name+2`, … if that one exists.

    No two processes get the same directory. `path` is final after entry.
    """

    def __init__(self, parent: Path | str, name: str) -> None:
        super().__init__(Path(parent) / name)
        self._is_new = True

    @property
    def is_new(self) -> bool:
        """Whether the directory has yet to be created, even if `path` exists already."""
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
    """Return the provenance of the run with the settings of config.toml; none before it has started."""
    facts = directory.provenance()
    if facts is None:
        if any((directory.path / name).exists() for name in (ROUNDS, CHECKPOINT, RESULT)):
            raise directory.damaged(PROVENANCE, "is missing")
        return None
    current = facts.of(settings.digest())
    if current is None:
        config = directory.path / CONFIG
        raise InputError(
            f"{config} was changed since the run began: its digest differs from the one in {PROVENANCE};"
            " start a new run with it instead",
            code="changed-config",
            field=str(config),
        )
    return current


def checked_rounds(directory: RunDirectory, settings: Settings) -> History:
    """Return the records of the rounds that were played so far."""
    history = directory.rounds()
    if len(history) > settings.rounds:
        raise directory.damaged(ROUNDS, f"has {len(history)} rounds, {CONFIG} only {settings.rounds}")
    return history


def checked_result(directory: RunDirectory, settings: Settings, facts: Provenance) -> Result | None:
    """Return the result, which must follow from the records; none if the run has not finished."""
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


_SIGNED = re.compile(r'(.*), "checksum": "([0-9a-f]{8})"\}', re.DOTALL)


def checksum(parts: Iterable[bytes | memoryview]) -> str:
    """Return the CRC-32, in hex, of the concatenated parts."""
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return f"{value:08x}"


def _signed(line: str, before: str) -> str:
    """Return a JSON object with one more entry: the checksum of the line and of the checksum `before`."""
    return f'{line[:-1]}, "checksum": "{_chained_checksum(line, before)}"}}'


def _signature(line: str) -> str:
    """Return the checksum at the end of a line; empty if there is none."""
    found = _SIGNED.fullmatch(line)
    return found[2] if found else ""


def _is_intact(line: str, before: str) -> bool:
    """Return whether a line is unchanged and follows a line with the checksum `before`."""
    found = _SIGNED.fullmatch(line)
    return found is not None and found[2] == _chained_checksum(found[1] + "}", before)


def _chained_checksum(line: str, before: str) -> str:
    return checksum([before.encode(), line.encode()])
