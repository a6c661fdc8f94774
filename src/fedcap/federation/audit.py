"""audit.jsonl: what happened in a federation, a line of JSON for each event, each tied to the one before.

A line ends with the SHA-256 of itself (`digest`), which covers the digest of the line before (`before`). So a
changed, missing or moved line shows. Cutting lines off the end, or computing the whole file anew, shows only
against a digest that was noted elsewhere: the last one is the file's head. Text that comes from others is
bounded and kept to one line.
"""

from __future__ import annotations

import fcntl
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

AUDIT = "audit.jsonl"
EVENTS = {
    "asked": "a site's request was read",
    "approved": "the operator took a site in",
    "active": "a site took part for the first time since it was taken in",
    "probation": "a site is suspected, and stays for now",
    "cleared": "a suspected site is no longer suspected",
    "removed": "a site is out for good",
    "readmitted": "the operator took a removed site back",
    "plan": "a plan was made or agreed to",
    "started": "the server or the site was started",
    "restarted": "the server or the site went on after an interruption",
    "stopped": "the server or the site was stopped",
    "round": "a round was closed and is on disk",
    "given-up": "a round had too few replies and counts for nothing",
    "refused": "an answer, an order or a bundle was not accepted",
    "bounded": "a claim was cut down",
    "customised": "a site asked for a model made for it, and got it",
    "finished": "the last round of the plan is done",
    "cut-line": "a line that was not written to its end was dropped",
}
"""Every kind of event, and what it says."""
ABOUT = ("client", "round", "by", "reason")
"""What every event may say; whatever else it has to say is in its `facts`."""
MOST_TEXT, MOST_ITEMS, MOST_LINE = 300, 1000, 64_000
FIRST = "0" * 64
"""What stands as `before` in the first line."""
_LINE = re.compile(rb'(\{.*"before": "([0-9a-f]{64})"), "digest": "([0-9a-f]{64})"\}', re.DOTALL)


def now() -> str:
    """Return the time, as records have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def bounded(text: object, most: int = MOST_TEXT) -> str:
    """Return somebody else's text as one line of printable characters, cut if it is long."""
    whole = text if isinstance(text, str) else repr(text)
    kept = " ".join("".join(c if c.isprintable() else " " for c in whole[: 2 * most]).split())
    if len(whole) <= 2 * most and len(kept) <= most:
        return kept
    return f"{kept[:most]}… ({len(whole):,} characters)"


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
        """Return what happened for people, without the time; `names` are what clients are called."""
        who = self.facts.get("name") or (names or {}).get(self.client or "", self.client)
        number = "" if self.round is None else f"round {self.round}"
        others = ((key, value) for key, value in self.facts.items() if key != "name" and value is not None)
        facts = ", ".join(f"{key} {_brief(value)}" for key, value in others if not isinstance(value, Mapping))
        return (
            f"{self.event:<10}  {' · '.join(str(part) for part in (who, number, self.reason, facts) if part)}"
        )


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
        with open(self.path, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            number, before, cut = self._end(file)
            if cut:
                number, before = self._append(file, number, before, "cut-line", {}, {"bytes": cut})
            self._append(file, number, before, event, about, facts)
            file.flush()
            os.fsync(file.fileno())

    def _append(
        self, file: Any, number: int, before: str, event: str, about: Mapping[str, Any], facts: Any
    ) -> tuple[int, str]:
        """Write a line after the one numbered so; return its own number and digest."""
        content = {
            "number": number + 1,
            "time": now(),
            "event": event,
            **{key: _plain(about.get(key)) for key in ABOUT},
            "facts": {key: _plain(value) for key, value in facts.items()},
            "before": before,
        }
        line = json.dumps(content, ensure_ascii=False).encode()
        if len(line) > MOST_LINE:
            line = json.dumps(content | {"facts": {"dropped": len(line)}}, ensure_ascii=False).encode()
        body = line[:-1]
        digest = hashlib.sha256(body).hexdigest()
        file.write(body + f', "digest": "{digest}"}}\n'.encode())
        return number + 1, digest

    @staticmethod
    def _end(file: Any) -> tuple[int, str, int]:
        """Return the last line's number and digest, and drop what a killed writer left after it."""
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 2 * MOST_LINE))
        tail = file.read()
        whole = tail[: tail.rfind(b"\n") + 1]
        if cut := len(tail) - len(whole):
            file.truncate(size - cut)
        last = whole.rstrip(b"\n").rpartition(b"\n")[2]
        found, number = _LINE.fullmatch(last), _number(last)
        if found is None or number is None:  # the first line, or a damaged one: `verify` tells
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
        """Return the digest of the last line: noted elsewhere, it tells later whether lines were cut off."""
        digest = FIRST
        for event in self.events():
            digest = event.digest
        return digest


def verify(path: Path | str, head: str | None = None) -> list[str]:
    """Return what is wrong with an audit file, a line for each; nothing if it is whole.

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
            what = f"is number {number}: {_span(expected, number - 1)} missing before it"
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
    """Yield the lines of a file; the last one only if it is whole, unless that is wanted."""
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


def _span(first: int, last: int) -> str:
    return f"number {first} is" if first == last else f"numbers {first} to {last} are"


def _plain(value: Any) -> Any:
    """Return a value as JSON may have it, whoever it came from: bounded, finite, without surprises."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 2**63 else "a number beyond 64 bits"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [bounded(item) if isinstance(item, str) else _plain(item) for item in value[:MOST_ITEMS]]
    if isinstance(value, Mapping):
        return {bounded(key): _plain(item) for key, item in list(value.items())[:MOST_ITEMS]}
    return bounded(value)
