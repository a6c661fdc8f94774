"""The ledger: who may take part, the state of each, and that no decision is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import refused

from fedcap.federation.audit import Audit, verify
from fedcap.federation.ledger import Ledger, State


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "ledger.json", Audit(tmp_path / "audit.jsonl"))
    for client in ("aaaa-1", "bbbb-2"):
        made.ask(client, f"site-{client[0]}", f"key of {client}")
        made.approve(client)
    return made


def allowed(ledger: Ledger, client: str) -> bool:
    entry = ledger.entries().get(client)
    return entry is not None and entry.allowed


def events(ledger: Ledger) -> list[str]:
    return [event.event for event in ledger.audit.events()]


def test_a_client_takes_part_only_after_its_approval(ledger: Ledger) -> None:
    assert not allowed(ledger, "cccc-3")
    ledger.ask("cccc-3", "site-c", "key")
    assert (ledger.find("site-c").state, allowed(ledger, "cccc-3")) == (State.ASKED, False)
    ledger.approve("cccc-3")
    assert (ledger.find("site-c").state, allowed(ledger, "cccc-3")) == (State.APPROVED, True)


def test_every_change_has_its_round_score_reason_and_author_in_the_ledger_and_the_audit(
    ledger: Ledger,
) -> None:
    ledger.activate("aaaa-1", 1)
    ledger.suspect("aaaa-1", 2, 7.5, "7.5 times as long")
    ledger.activate("aaaa-1", 3)
    ledger.remove("aaaa-1", "9.0 times as long", round=4, score=9.0)
    ledger.readmit("aaaa-1", "sensor was mended")
    changes = ledger.find("site-a").changes
    assert [change.state for change in changes] == [
        "asked",
        "approved",
        "active",
        "probation",
        "active",
        "removed",
        "approved",
    ]
    removal = changes[5]
    assert (removal.round, removal.score, removal.reason, removal.by) == (
        4,
        9.0,
        "9.0 times as long",
        "server",
    )
    assert (changes[6].reason, changes[6].by) == ("sensor was mended", "operator")
    expected = ["active", "probation", "cleared", "removed", "readmitted"]
    assert events(ledger)[-5:] == expected
    (line,) = [event for event in ledger.audit.events() if event.event == "removed"]
    assert (line.client, line.round, line.by, line.reason) == ("aaaa-1", 4, "server", "9.0 times as long")
    assert line.facts["score"] == 9.0
    assert verify(ledger.audit.path) == []


def test_a_removed_client_stays_out(ledger: Ledger) -> None:
    ledger.remove("aaaa-1", "IPM", round=1, score=40.0)
    assert not allowed(ledger, "aaaa-1")
    assert ledger.ask("aaaa-1", "a-new-name", "key").state == State.REMOVED
    for attempt in (
        lambda: ledger.approve("aaaa-1"),
        lambda: ledger.activate("aaaa-1", 2),
        lambda: ledger.suspect("aaaa-1", 2, 1.0, "x"),
        lambda: ledger.remove("aaaa-1", "again"),
    ):
        with refused("state"):
            attempt()
    assert not allowed(ledger, "aaaa-1")
    assert ledger.find("site-a").name == "site-a"


def test_readmission_needs_a_removed_client_and_a_reason(ledger: Ledger) -> None:
    with refused("state"):
        ledger.readmit("aaaa-1", "why not")
    ledger.remove("aaaa-1", "IPM")
    with refused("missing"):
        ledger.readmit("aaaa-1", "  ")
    ledger.readmit("aaaa-1", "found to be innocent")
    assert allowed(ledger, "aaaa-1")


def test_a_ledger_that_is_open_sees_the_operators_changes(ledger: Ledger) -> None:
    another = Ledger(ledger.path, ledger.audit)
    assert allowed(another, "bbbb-2")
    ledger.remove("bbbb-2", "left the consortium", by="operator")
    assert not allowed(another, "bbbb-2")
    another.activate("aaaa-1", 5)
    assert (ledger.find("site-a").state, ledger.find("site-b").state) == ("active", "removed")


def test_two_processes_lose_no_change(ledger: Ledger, tmp_path: Path) -> None:
    code = """
import sys
from fedcap.federation.audit import Audit
from fedcap.federation.ledger import Ledger
ledger = Ledger(sys.argv[1], Audit(sys.argv[2]))
for turn in range(20):
    ledger.remove(sys.argv[3], "out")
    ledger.readmit(sys.argv[3], "in")
"""
    arguments = [sys.executable, "-c", code, str(ledger.path), str(ledger.audit.path)]
    writers = [subprocess.Popen([*arguments, client]) for client in ("aaaa-1", "bbbb-2")]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert [len(entry.changes) for entry in ledger.entries().values()] == [42, 42]
    assert verify(ledger.audit.path) == []


def test_two_sites_cannot_have_one_name(ledger: Ledger) -> None:
    with refused("name-taken"):
        ledger.ask("dddd-4", "Site-A", "key")
    assert "dddd-4" not in ledger.entries()


def test_clients_are_found_by_name_fingerprint_or_its_beginning(ledger: Ledger) -> None:
    for who in ("site-a", "SITE-A", "aaaa-1", "AAAA", " aaaa-1 "):
        assert ledger.find(who).client == "aaaa-1"
    with refused("unknown-client"):
        ledger.find("site-x")
    ledger.ask("aaaa-9", "site-z", "key")
    with refused("ambiguous-client"):
        ledger.find("aaaa")


def test_customised_models_are_counted_and_bounded(ledger: Ledger) -> None:
    assert [ledger.count_customised("aaaa-1", limit=2) for _ in range(4)] == [True, True, False, False]
    assert (ledger.find("site-a").customised, events(ledger).count("customised")) == (2, 2)
    ledger.remove("bbbb-2", "IPM")
    assert not ledger.count_customised("bbbb-2", limit=2)
    assert not ledger.count_customised("unknown", limit=2)


def test_an_untrusted_reason_is_bounded_and_the_file_stays_json(ledger: Ledger) -> None:
    ledger.suspect("aaaa-1", 1, float("inf"), "x\n" * 5_000_000)
    ledger.remove("aaaa-1", "\ud800\x00", score=float("nan"))
    assert ledger.path.stat().st_size < 4_000
    json.loads(ledger.path.read_text(), parse_constant=pytest.fail)
    assert ledger.find("site-a").changes[-1].score is None


def test_a_damaged_ledger_is_reported_and_not_replaced(ledger: Ledger) -> None:
    whole = ledger.path.read_text()
    for damage in (
        "",
        "{",
        "[]",
        "{}x",
        '{"aaaa-1": {}}',
        whole[:-30],
        whole.replace('"approved"', '"king"'),
    ):
        ledger.path.write_text(damage)
        with refused("damaged"):
            ledger.entries()
        with refused("damaged"):
            ledger.ask("dddd-4", "site-d", "key")
        assert ledger.path.read_text() == damage


def test_a_change_that_fails_to_be_written_leaves_the_old_ledger(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        ledger.remove("aaaa-1", "IPM")
    assert allowed(ledger, "aaaa-1")
    assert not list(ledger.path.parent.glob(".*.partial"))


def test_a_ledger_of_an_earlier_version_is_read(ledger: Ledger) -> None:
    ledger.path.write_text(ledger.path.read_text().replace('"approved"', '"enrolled"'))
    assert [entry.state for entry in ledger.entries().values()] == [State.APPROVED] * 2
    ledger.activate("aaaa-1", 1)
    assert '"enrolled"' not in ledger.path.read_text()
