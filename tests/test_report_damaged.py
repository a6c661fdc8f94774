"""Hostile, damaged and partial directories: the report shows what can be read, and lists what cannot."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from helpers import Killed, Killer, refused
from report_tools import decoded, reason, record, write
from run_tools import SMALL

import fedcap
from benchmarks.page import MOST_RUN, write_run
from fedcap.report.mixing import MAX_ROWS
from fedcap.report.model import Report, RunData
from fedcap.report.pack import pack
from fedcap.report.page import build_report, page
from fedcap.report.run import Standing
from fedcap.runs import AttackStats, Mixing, read

NAMES = ["ada", "bob", "cyd"]
BAD = "<script>alert(1)</script>"


def built(path: Path) -> tuple[Report, RunData]:
    """Return the report on a directory, after it was written as a page and decoded again."""
    report = build_report(path)
    text = pack(report)
    assert page(text).count("</script>") == 2  # the report's, and the page's
    assert decoded(json.loads(text))["title"] == report.title
    assert report.run is not None
    return report, report.run


def test_names_and_reasons_do_not_end_a_script(tmp_path: Path) -> None:
    names = [BAD, "]]>&amp;", "a\u2028b\x00"]
    weights = np.full((3, 3), 1 / 3)
    rounds = [record(1, names), record(2, names, removed={BAD: reason(BAD)}, weights_entropy=1.0)]
    rounds[1].scores[BAD] = {BAD: 1.0}  # type: ignore[index]
    path = write(tmp_path, rounds, names, mixings=[Mixing(2, names, names, weights)])
    text = pack(build_report(path))
    assert not set("<>&") & set(text)
    run = decoded(json.loads(text))["run"]
    assert [client["name"] for client in run["clients"]] == names
    assert run["events"][0]["reason"] == run["scores"][1]["name"] == BAD
    built(path)


def test_half_of_a_surrogate_pair_does_not_prevent_the_page(tmp_path: Path) -> None:
    path = write(tmp_path, [record(1, NAMES)], NAMES)
    report = build_report(path, standings={"ada": Standing("a\ud800b", "active")})
    assert decoded(json.loads(pack(report).encode()))["run"]["clients"][0]["name"] == "a?b"


def test_long_names_and_reasons_are_cut_and_the_page_says_so(tmp_path: Path) -> None:
    long = "x" * 10_000_000
    rounds = [record(1, [*NAMES, "n" * 500], removed={"ada": reason(long)}, refused={"bob": long})]
    report, _ = built(write(tmp_path, rounds, [*NAMES, "n" * 500]))
    assert len(pack(report)) < 10_000
    cut = {"Names longer than 60 characters are cut.", "Reasons longer than 300 characters are cut."}
    assert set(report.omitted) == cut


def test_an_incomplete_last_line_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, [record(number, NAMES) for number in range(1, 6)], NAMES, finished=False)
    lines = path / "rounds.jsonl"
    lines.write_bytes(lines.read_bytes()[:-100])
    report, _ = built(path)
    assert (report.done, report.planned, report.state, report.problems) == (4, 5, "unfinished", [])


def test_rounds_before_a_damaged_line_are_shown(tmp_path: Path) -> None:
    path = write(tmp_path, [record(number, NAMES) for number in range(1, 6)], NAMES)
    lines = (path / "rounds.jsonl").read_text().splitlines()
    lines[2] = lines[2].replace("90.0", "99.0", 1)
    (path / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    report, _ = built(path)
    assert (report.done, report.state) == (2, "unfinished")
    assert "line 3, was changed" in report.problems[0]
    assert "the 2 rounds before that" in report.problems[0]


@pytest.mark.parametrize("name", ["config.toml", "provenance.json", "result.json", "mixing.bin"])
@pytest.mark.parametrize("content", [None, b"", b"\xff\x00 nonsense {"])
def test_a_file_that_is_missing_or_unreadable_leaves_the_rest(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    rounds = [record(1, NAMES), record(2, NAMES, weights_entropy=1.0)]
    path = write(tmp_path, rounds, NAMES, mixings=[Mixing(2, NAMES, NAMES, np.full((3, 3), 1 / 3))])
    if content is None:
        (path / name).unlink()
    else:
        (path / name).write_bytes(content)
    report, run = built(path)
    assert report.done == 2
    assert [client.name for client in run.clients] == NAMES
    listed = report.omitted if name == "mixing.bin" else report.problems
    needed = name != "result.json" or content is not None  # a run without a result may still be running
    assert any(name in line for line in listed) == needed


def test_a_run_that_has_not_begun_and_one_that_was_killed(tmp_path: Path) -> None:
    report, _ = built(write(tmp_path / "new", [], NAMES, finished=False, rounds=7))
    assert (report.done, report.planned, report.state) == (0, 7, "unfinished")
    with pytest.raises(Killed):
        fedcap.Experiment(**SMALL).run(out=tmp_path / "run", observers=[Killer(2)])
    report, _ = built(tmp_path / "run")
    assert (report.done, report.planned, report.state) == (2, 3, "unfinished")
    assert "2 of 3 rounds so far" in report.summary


@pytest.mark.parametrize("content", [b"no zlib", zlib.compress(b'[["ada"]'), zlib.compress(b"[[0],[1]]\n12")])
def test_unreadable_mixing_weights_leave_the_rest(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, [record(1, NAMES, weights_entropy=1.0)], NAMES)
    head = struct.pack("<III", len(content), zlib.crc32(content, 1), 1)
    (tmp_path / "mixing.bin").write_bytes(head + content)
    report, run = built(tmp_path)
    assert run.mixing is None
    assert "Mixing weights of 1 round cannot be read from mixing.bin." in report.omitted
    with refused("damaged-run"):
        _ = read(tmp_path).mixings


def test_a_run_without_any_finite_number(tmp_path: Path) -> None:
    scores = {"norm": dict.fromkeys(NAMES, None)}
    sent = AttackStats(None, None, None)
    rounds = [
        record(n, NAMES, scores=scores, limits={"norm": None}, attack=sent, diverged=NAMES[:2])
        for n in (1, 2)
    ]
    weights = Mixing(2, NAMES, NAMES, np.full((3, 3), np.nan))
    report, _ = built(write(tmp_path, rounds, NAMES, ["cyd"], [weights]))
    marks = {check.name: check.mark for check in report.checks}
    assert (marks["Attack"], marks["Divergence"]) == ("warn", "bad")


def test_a_thousand_clients_fit_and_similar_ones_share_a_row(tmp_path: Path) -> None:
    names = [f"client {number}" for number in range(1000)]
    groups = np.arange(1000) % 4
    weights = np.where(groups[:, None] == groups, 1.0, 0.01)
    weights /= weights.sum(axis=1, keepdims=True)
    rounds = [record(1, names), record(2, names, weights_entropy=5.0), record(3, names, weights_entropy=5.0)]
    path = write(tmp_path, rounds, names, mixings=[Mixing(n, names, names, weights) for n in (2, 3)])
    report, run = built(path)
    mixing = run.mixing
    assert mixing is not None
    assert sorted(client for row in mixing.rows for client in row) == list(range(1000))
    assert len(mixing.rows) <= MAX_ROWS
    assert mixing.weights.sum(axis=2) == pytest.approx(1, abs=0.02)
    assert any("up to 7 similar clients" in note for note in report.omitted)
    assert sum(len({client % 4 for client in row}) > 1 for row in mixing.rows) <= 4
    assert len(pack(report)) < MOST_RUN


def test_many_rounds_and_events_are_thinned_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedcap.report.pack.MAX_ROUNDS", 20)
    monkeypatch.setattr("fedcap.report.run.MAX_EVENTS", 15)
    rounds = [record(number, NAMES, refused={"bob": f"late {number}"}) for number in range(1, 31)]
    rounds[24] = record(25, NAMES, removed={"ada": reason()})
    report, run = built(write(tmp_path, rounds, NAMES))
    assert run.accuracy is not None
    kept = run.accuracy.rounds
    assert (kept[0], kept[-1], len(kept)) == (1, 30, 20)
    assert set(np.diff(kept)) == {1, 2}
    assert "Accuracy: 20 of 30 rounds are shown, evenly spread." in report.omitted
    assert "Events other than removals: the first 15 of 29 are listed." in report.omitted
    assert [event.round for event in run.events if event.kind == "removed"] == [25]
    assert [event.round for event in run.events if event.kind == "not counted"] == list(range(1, 16))


def test_a_directory_without_records_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text('{"a": 1}')
    with refused("no-run"):
        build_report(tmp_path)


def test_the_size_budget_of_a_run_holds(tmp_path: Path) -> None:
    write_run(tmp_path)
    report, run = built(tmp_path)
    assert len(page(pack(report))) < MOST_RUN
    assert run.mixing is not None
    assert len(run.mixing.rounds) == 99
