"""audit.jsonl: tampering is found, untrusted text does no harm, and killed writers leave complete lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedcap.federation.audit import FIRST, MAX_LINE, Audit, bounded, verify


@pytest.fixture
def audit(tmp_path: Path) -> Audit:
    made = Audit(tmp_path / "audit.jsonl")
    made.write("plan", by="operator", digest_of_plan="ab")
    for number in range(1, 4):
        made.write("round", round=number, accuracy=90.5)
    made.write("removed", client="k7qm", round=3, by="server", reason="too long", score=12.5)
    return made


def change(audit: Audit, edit: object) -> list[str]:
    lines = audit.path.read_bytes().splitlines(keepends=True)
    audit.path.write_bytes(b"".join(edit(lines)))  # type: ignore[operator]
    return verify(audit.path)


def test_a_whole_audit_has_no_problems_and_reads_back(audit: Audit) -> None:
    assert verify(audit.path) == []
    events = list(audit.events())
    assert [event.event for event in events] == ["plan", "round", "round", "round", "removed"]
    assert [event.number for event in events] == [1, 2, 3, 4, 5]
    last = events[-1]
    assert (last.client, last.round, last.by, last.reason) == ("k7qm", 3, "server", "too long")
    assert last.facts == {"score": 12.5}


def test_every_line_holds_the_digest_of_the_one_before(audit: Audit) -> None:
    lines = [json.loads(line) for line in audit.path.read_text().splitlines()]
    assert [line["before"] for line in lines] == [FIRST, *(line["digest"] for line in lines[:-1])]
    assert audit.head() == lines[-1]["digest"]


def replaced(lines: list[bytes], place: int, line: bytes) -> list[bytes]:
    return [*lines[:place], line, *lines[place + 1 :]]


DAMAGE = {
    **{
        f"line {place + 1} is changed": (
            lambda lines, place=place: replaced(
                lines, place, lines[place].replace(b'"time": "2', b'"time": "3')
            ),
            f"line {place + 1}, was changed",
        )
        for place in range(5)
    },
    **{
        f"line {place + 1} is missing": (
            lambda lines, place=place: lines[:place] + lines[place + 1 :],
            f"number {place + 1} is missing",
        )
        for place in range(4)
    },
    "moved": (lambda lines: [lines[0], lines[2], lines[1]], "moved"),
    "doubled": (lambda lines: [*lines, lines[-1]], "doubled"),
    "cut in its middle": (
        lambda lines: [*lines[:-1], lines[-1][:-20]],
        "line 5, was changed, or was not written to its end",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(audit: Audit, name: str) -> None:
    edit, said = DAMAGE[name]
    found = change(audit, edit)
    assert any(said in problem for problem in found)
    assert len(found) == 1 or name in ("moved", "doubled")


def test_a_line_that_was_computed_again_does_not_match_the_next(audit: Audit, tmp_path: Path) -> None:
    other = Audit(tmp_path / "other.jsonl")
    other.write("plan", by="operator", digest_of_plan="another")
    forged = other.path.read_bytes()
    (problem,) = change(audit, lambda lines: [forged, *lines[1:]])
    assert "line 2, does not follow the line before it" in problem


def test_lines_cut_off_the_end_show_only_against_a_noted_head(audit: Audit) -> None:
    head = audit.head()
    audit.write("stopped", by="operator")
    assert verify(audit.path, head) == []
    assert change(audit, lambda lines: lines[:3]) == []
    (problem,) = verify(audit.path, head)
    assert "lines were cut off" in problem


def test_a_missing_audit_is_a_problem(tmp_path: Path) -> None:
    assert verify(tmp_path / "audit.jsonl") == [f"there is no {tmp_path / 'audit.jsonl'}"]


def test_an_audit_continues_after_a_writer_was_killed_within_a_line(audit: Audit) -> None:
    with open(audit.path, "ab") as file:
        file.write(b'{"number": 6, "time": "20')
    audit.write("restarted", by="server")
    assert verify(audit.path) == []
    assert [event.event for event in audit.events()][-2:] == ["cut-line", "restarted"]


@pytest.mark.parametrize(
    "untrusted",
    ["two\nlines", '"}, "digest": "' + "0" * 64 + '"}', "\x00\x1b[2J\u202e", "\ud800", "x" * 10_000_000, ""],
    ids=["lines", "quotes", "controls", "surrogate", "10 MB", "empty"],
)
def test_untrusted_text_stays_one_bounded_line(audit: Audit, untrusted: str) -> None:
    audit.write("refused", client=untrusted, round=4, reason=untrusted, by=untrusted, said=[untrusted] * 1000)
    audit.write("refused", reason="the next", numbers=[float("nan"), float("inf"), 2**80, -(2**63)])
    assert verify(audit.path) == []
    lines = audit.path.read_bytes().split(b"\n")
    assert len(lines) == 8
    assert max(map(len, lines)) <= MAX_LINE
    for line in lines[:-1]:
        assert line.decode().isprintable()
        json.loads(line, parse_constant=pytest.fail)


def test_cut_text_ends_with_its_full_length() -> None:
    assert bounded("x" * 5000, 10) == "xxxxxxxxxx… (5,000 characters)"
    assert bounded(" a\t b\n") == "a b"
    assert bounded(b"bytes") == "b'bytes'"


def test_an_event_that_is_not_in_the_schema_is_not_written(audit: Audit) -> None:
    with pytest.raises(ValueError, match="no event is called 'party'"):
        audit.write("party")


def test_several_processes_write_one_chain(audit: Audit) -> None:
    code = (
        "import sys; from fedcap.federation.audit import Audit; a = Audit(sys.argv[1])\n"
        "for n in range(40): a.write('round', round=n, by=sys.argv[2])"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(audit.path), str(number)]) for number in range(3)
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert verify(audit.path) == []
    assert len(list(audit.events())) == 5 + 3 * 40
