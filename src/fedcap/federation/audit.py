"""audit.jsonl: the events of a federation, one line of JSON each, chained by digests.

A line ends with the SHA-256 of itself (`digest`), which covers the digest of the line before (`before`). A
changed, missing or moved line therefore shows. Lines cut off the end, or a file that was computed again from
the start, show only against a digest that was noted elsewhere: the last digest is the file's head. Text that
comes from others is bounded and kept to one line.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

AUDIT = "audit.jsonl"
EVENTS = {
    "asked": "a site's request to join was read",
    "approved": "the operator approved a site",
    "active": "a client took part for the first time since it was approved",
    "probation": "a client is suspected, and stays for now",
    "cleared": "a suspected client is no longer suspected",
    "removed": "a client was removed",
    "readmitted": "the operator readmitted a removed client",
    "plan": "a plan was made or agreed to",
    "started": "the server or the site was started",
    "restarted": "the server or the site continued after an interruption",
    "stopped": "the server or the site was stopped",
    "round": "a round was closed and is on disk",
    "given-up": "a round had too few replies and does not count",
    "refused": "an answer, an order or a bundle was not accepted",
    "bounded": "a claim was limited",
    "customised": "a site asked for a model made for it, and received it",
    "finished": "the last round of the plan is done",
    "cut-line": "a line that was not written to its end was dropped",
}
"""Every kind of event, with its meaning."""
ABOUT = ("client", "round", "by", "reason")
"""The columns of every event; all other values are in its `facts`."""
MAX_TEXT, MAX_ITEMS, MAX_LINE = 300, 1000, 64_000
FIRST = "0" * 64
"""`before` of the first line."""
_LINE = re.compile(rb'(\{.*"before": "([0-9a-f]{64})"), "digest": "([0-9a-f]{64})"\}', re.DOTALL)


def now() -> str:
    """Return the time in the form that records have."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def bounded(text: object, limit: int = MAX_TEXT) -> str:
    """Return untrusted text as one line of printable characters, cut at `limit`."""
    whole = text if isinstance(text, str) else repr(text)
    line = " ".join("".join(c if c.isprintable() else " " for c in whole[: 2 * limit]).split())
    if len(whole) <= 2 * limit and len(line) <= limit:
        return line
    return f"{line[:limit]}… ({len(whole):,} characters)"


@dataclass(frozen=True)
class Event:
    """A line of the audit."""

    number: int
    time: str
    event: str
    client: str | None
    round: int | None
    by: str | None
    reason: str | None
    facts: Mapping[str, Any]
    digest: str

    def line(self, names: Mapping[str, str] | None = None) -> str:
        """Return the event as a line of text without its time; `names` are the clients' names."""
        who = self.facts.get("name") or (names or {}).get(self.client or "", self.client)
        number = "" if self.round is None else f"round {self.round}"
        others = ((key, value) for key, value in self.facts.items() if key != "name" and value is not None)
        facts = ", ".join(f"{key} {_brief(value)}" for key, value in others if not isinstance(value, Mapping))
        parts = " · ".join(str(part) for part in (who, number, self.reason, facts) if part)
        return f"{self.event:<10}  {parts}"


def _brief(value: Any) -> str:
    if isinstance(value, list):
        return str(len(value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return value[:12] if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) else str(value)


class Audit:
    """Writes and reads one audit file. Several processes may write to it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = FileLock(self.path.with_name(f".{self.path.name}.lock"))

    def write(
        self,
        event: str,
        *,
        client: str | None = None,
        round: int | None = None,
        by: str | None = None,
        reason: str | None = None,
        **facts: Any,
    ) -> None:
        """Append an event; it is on disk when this returns."""
        if event not in EVENTS:
            raise ValueError(f"no event is called {event!r}")
        about = {"client": client, "round": round, "by": by, "reason": reason}
        with self._lock, open(self.path, "a+b") as file:
            number, before, cut = self._end(file)
            if cut:
                number, before = self._append(file, number, before, "cut-line", {}, {"bytes": cut})
            self._append(file, number, before, event, about, facts)
            file.flush()
            os.fsync(file.fileno())

    def _append(
        self, file: Any, number: int, before: str, event: str, about: Mapping[str, Any], facts: Any
    ) -> tuple[int, str]:
        """Write the line after line `number`; return its own number and digest."""
        content = {
            "number": number + 1,
            "time": now(),
            "event": event,
            **{key: _plain(about.get(key)) for key in ABOUT},
            "facts": {key: _plain(value) for key, value in facts.items()},
            "before": before,
        }
        line = json.dumps(content, ensure_ascii=False).encode()
        if len(line) > MAX_LINE:
            line = json.dumps(content | {"facts": {"dropped": len(line)}}, ensure_ascii=False).encode()
        body = line[:-1]
        digest = hashlib.sha256(body).hexdigest()
        file.write(body + f', "digest": "{digest}"}}\n'.encode())
        return number + 1, digest

    @staticmethod
    def _end(file: Any) -> tuple[int, str, int]:
        """Return the last line's number and digest, and remove the bytes of a killed writer after it."""
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 2 * MAX_LINE))
        tail = file.read()
        whole = tail[: tail.rfind(b"\n") + 1]
        if cut := len(tail) - len(whole):
            file.truncate(size - cut)
        last = whole.rstrip(b"\n").rpartition(b"\n")[2]
        found, number = _LINE.fullmatch(last), _number(last)
        if found is None or number is None:  # the file is new, or its last line is damaged: see `verify`
            file.seek(0)
            return file.read().count(b"\n"), hashlib.sha256(last).hexdigest() if last else FIRST, cut
        return number, found[3].decode(), cut

    def events(self) -> Iterator[Event]:
        """Yield the events that can be read, in the order of the file."""
        for line in _lines(self.path):
            try:
                content = json.loads(line)
                content.pop("before")
                yield Event(**content)
            except (ValueError, TypeError, KeyError, AttributeError):
                continue

    def head(self) -> str:
        """Return the digest of the last line: noted elsewhere, it shows later whether lines were cut off."""
        digest = FIRST
        for event in self.events():
            digest = event.digest
        return digest


def verify(path: Path | str, head: str | None = None) -> list[str]:
    """Return the problems of an audit file, a line for each; none if the file is whole.

    `head` is a digest that was noted earlier: the file must have the line that ends with it.
    """
    path = Path(path)
    if not path.exists():
        return [f"there is no {path}"]
    problems, expected, before, seen = [], 1, FIRST, set()
    for place, line in enumerate(_lines(path, also_cut=True), start=1):
        found = _LINE.fullmatch(line)
        number = _number(line) if found else None
        if found is None or number is None:
            what = "was changed, or was not written to its end"
        elif hashlib.sha256(found[1]).hexdigest() != found[3].decode():
            what = "was changed"
        elif number > expected:
            missing = f"number {expected} is" if number == expected + 1 else f"{expected} to {number - 1} are"
            what = f"is number {number}: {missing} missing before it"
        elif number < expected:
            what = f"is number {number}: it was moved or doubled"
        elif found[2].decode() != before:
            what = "does not follow the line before it: one of the two was replaced"
        else:
            what = ""
        if what:
            problems.append(f"{path.name}, line {place}, {what}")
        before = found[3].decode() if found else ""
        seen.add(before)
        expected = (expected if number is None else number) + 1
    if head is not None and head.strip().lower() not in seen:
        problems.append(f"{path.name} has no line with the digest {bounded(head, 64)}: lines were cut off")
    return problems


def _lines(path: Path, also_cut: bool = False) -> Iterator[bytes]:
    """Yield the lines of a file; the last one only if it is whole, unless `also_cut`."""
    try:
        file = open(path, "rb")  # noqa: SIM115 (a missing file has no lines)
    except FileNotFoundError:
        return
    with file:
        for line in file:
            if line.endswith(b"\n") or also_cut:
                yield line.removesuffix(b"\n")


def _number(line: bytes) -> int | None:
    try:
        number = json.loads(line)["number"]
    except (ValueError, KeyError, TypeError):
        return None
    return number if type(number) is int else None


def _plain(value: Any) -> Any:
    """Return an untrusted value as valid JSON: bounded, finite, printable."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 2**63 else "a number beyond 64 bits"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [bounded(item) if isinstance(item, str) else _plain(item) for item in value[:MAX_ITEMS]]
    if isinstance(value, Mapping):
        return {bounded(key): _plain(item) for key, item in list(value.items())[:MAX_ITEMS]}
    return bounded(value)
