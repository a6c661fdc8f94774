"""Hostile, damaged and partial directories: what can be read is told, harmlessly, and what cannot be too."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from helpers import Killed, Killer
from run_tools import SMALL
from story_tools import decoded, reason, record, write

import fedcap
from benchmarks.page import write_run
from fedcap.errors import InputError
from fedcap.report.page import page
from fedcap.report.story import Standing, Story, packed, story_of
from fedcap.report.story.mixing_map import MOST_ROWS
from fedcap.runs import AttackStats, Mixing, read

NAMES = ["ada", "bob", "cyd"]
BAD = "<script>alert(1)</script>"


def told(path: Path) -> Story:
    """Return the story of a directory, once it was made a page and decoded again."""
    story = story_of(path)
    text = packed(story)
    assert page(text).count("</script>") == 2  # the story's own, and the page's
    assert decoded(json.loads(text))["title"] == story.title
    return story


def test_names_and_reasons_end_no_script(tmp_path: Path) -> None:
    names = [BAD, "]]>&amp;", "a\u2028b\x00"]
    weights = np.full((3, 3), 1 / 3)
    rounds = [record(1, names), record(2, names, removed={BAD: reason(BAD)}, weights_entropy=1.0)]
    rounds[1].scores[BAD] = {BAD: 1.0}  # type: ignore[index]
    path = write(tmp_path, rounds, names, mixings=[Mixing(2, names, names, weights)])
    text = packed(story_of(path))
    assert not set("<>&") & set(text)
    course = decoded(json.loads(text))["course"]
    assert [client["name"] for client in course["clients"]] == names
    assert course["events"][0]["reason"] == course["scores"][1]["name"] == BAD
    told(path)


def test_half_a_surrogate_pair_is_no_reason_for_no_page(tmp_path: Path) -> None:
    path = write(tmp_path, [record(1, NAMES)], NAMES)
    story = story_of(path, standings={"ada": Standing("a\ud800b", "active")})
    assert decoded(json.loads(packed(story).encode()))["course"]["clients"][0]["name"] == "a?b"


def test_a_reason_of_ten_megabytes_is_cut_and_that_is_said(tmp_path: Path) -> None:
    long = "x" * 10_000_000
    rounds = [record(1, [*NAMES, "n" * 500], removed={"ada": reason(long)}, refused={"bob": long})]
    story = told(write(tmp_path, rounds, [*NAMES, "n" * 500]))
    assert len(packed(story)) < 10_000
    cut = {"Names longer than 60 characters are cut.", "Reasons longer than 300 characters are cut."}
    assert set(story.thinned) == cut


def test_rounds_cut_in_the_middle_of_a_line_are_told_to_the_last_whole_one(tmp_path: Path) -> None:
    path = write(tmp_path, [record(number, NAMES) for number in range(1, 6)], NAMES, finished=False)
    lines = path / "rounds.jsonl"
    lines.write_bytes(lines.read_bytes()[:-100])
    story = told(path)
    assert (story.played, story.planned, story.state, story.troubles) == (4, 5, "unfinished", [])


def test_a_damaged_line_is_told_and_the_rounds_before_it_are_shown(tmp_path: Path) -> None:
    path = write(tmp_path, [record(number, NAMES) for number in range(1, 6)], NAMES)
    lines = (path / "rounds.jsonl").read_text().splitlines()
    lines[2] = lines[2].replace("90.0", "99.0", 1)
    (path / "rounds.jsonl").write_text("\n".join(lines) + "\n")
    story = told(path)
    assert (story.played, story.state) == (2, "unfinished")
    assert "line 3, was changed" in story.troubles[0]
    assert "the 2 rounds before that" in story.troubles[0]


@pytest.mark.parametrize("name", ["config.toml", "provenance.json", "result.json", "mixing.bin"])
@pytest.mark.parametrize("content", [None, b"", b"\xff\x00 nonsense {"])
def test_a_file_that_is_missing_or_nonsense_leaves_the_rest(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    rounds = [record(1, NAMES), record(2, NAMES, weights_entropy=1.0)]
    path = write(tmp_path, rounds, NAMES, mixings=[Mixing(2, NAMES, NAMES, np.full((3, 3), 1 / 3))])
    if content is None:
        (path / name).unlink()
    else:
        (path / name).write_bytes(content)
    story = told(path)
    assert story.played == 2
    assert story.course is not None
    assert [client.name for client in story.course.clients] == NAMES
    said = story.thinned if name == "mixing.bin" else story.troubles
    needed = name != "result.json" or content is not None  # a run without a result goes on
    assert any(name in line for line in said) == needed


def test_a_run_without_evaluation_and_a_run_of_one_round(tmp_path: Path) -> None:
    blind = told(write(tmp_path / "blind", [record(1, NAMES, None)], NAMES, finished=False))
    assert blind.course is not None
    assert blind.course.accuracy is None
    assert "time" in [headline.label for headline in blind.headlines]
    one = told(write(tmp_path / "one", [record(1, NAMES)], NAMES))
    assert one.course is not None
    assert one.course.accuracy is not None
    assert (one.state, one.course.accuracy.rounds) == ("finished", [1])


def test_a_run_that_has_not_begun_and_one_that_goes_on(tmp_path: Path) -> None:
    begun = told(write(tmp_path / "new", [], NAMES, finished=False, rounds=7))
    assert (begun.played, begun.planned, begun.state) == (0, 7, "unfinished")
    with pytest.raises(Killed):
        fedcap.Experiment(**SMALL).run(out=tmp_path / "run", observers=[Killer(2)])
    story = told(tmp_path / "run")
    assert (story.played, story.planned, story.state) == (2, 3, "unfinished")
    assert "2 of 3 rounds so far" in story.sentence


@pytest.mark.parametrize("content", [b"no zlib", zlib.compress(b'[["ada"]'), zlib.compress(b"[[0],[1]]\n12")])
def test_a_frame_of_weights_that_is_not_of_ours_leaves_the_rest(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, [record(1, NAMES, weights_entropy=1.0)], NAMES)
    head = struct.pack("<III", len(content), zlib.crc32(content, 1), 1)
    (tmp_path / "mixing.bin").write_bytes(head + content)
    story = told(tmp_path)
    assert story.course is not None
    assert story.course.mixing is None
    assert "Mixing weights of 1 round cannot be read from mixing.bin." in story.thinned
    with pytest.raises(InputError, match=r"mixing.bin cannot be read"):
        _ = read(tmp_path).mixings


def test_nothing_finite_anywhere(tmp_path: Path) -> None:
    scores = {"norm": dict.fromkeys(NAMES, None)}
    realised = AttackStats(None, None, None)
    rounds = [
        record(n, NAMES, scores=scores, limits={"norm": None}, attack=realised, diverged=NAMES[:2])
        for n in (1, 2)
    ]
    weights = Mixing(2, NAMES, NAMES, np.full((3, 3), np.nan))
    story = told(write(tmp_path, rounds, NAMES, ["cyd"], [weights]))
    marks = {check.name: check.mark for check in story.checks}
    assert (marks["Attack"], marks["Nobody diverged"]) == ("warn", "bad")


def test_a_thousand_clients_fit_and_neighbours_share_a_row(tmp_path: Path) -> None:
    names = [f"client {number}" for number in range(1000)]
    groups = np.arange(1000) % 4
    weights = np.where(groups[:, None] == groups, 1.0, 0.01)
    weights /= weights.sum(axis=1, keepdims=True)
    rounds = [record(1, names), record(2, names, weights_entropy=5.0), record(3, names, weights_entropy=5.0)]
    story = told(write(tmp_path, rounds, names, mixings=[Mixing(n, names, names, weights) for n in (2, 3)]))
    assert story.course is not None
    mixing = story.course.mixing
    assert mixing is not None
    assert sorted(client for row in mixing.rows for client in row) == list(range(1000))
    assert len(mixing.rows) <= MOST_ROWS
    assert mixing.weights.sum(axis=2) == pytest.approx(1, abs=0.02)  # merged as well
    assert any("rows of up to 7 neighbours" in said for said in story.thinned)
    assert sum(len({client % 4 for client in row}) > 1 for row in mixing.rows) <= 4
    assert len(packed(story)) < 500_000


def test_many_rounds_are_thinned_evenly_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedcap.report.story.thinning.MOST_ROUNDS", 20)
    monkeypatch.setattr("fedcap.report.story.course.MOST_EVENTS", 15)
    rounds = [record(number, NAMES, refused={"bob": "late"}) for number in range(1, 31)]
    rounds[24] = record(25, NAMES, removed={"ada": reason()})
    story = told(write(tmp_path, rounds, NAMES))
    assert story.course is not None
    assert story.course.accuracy is not None
    kept = story.course.accuracy.rounds
    assert (kept[0], kept[-1], len(kept)) == (1, 30, 20)
    assert set(np.diff(kept)) == {1, 2}
    assert "Accuracy: 20 of 30 rounds are shown, evenly spread." in story.thinned
    assert "Refusals and suspicions: the first 15 of 29 are listed." in story.thinned
    events = story.course.events
    assert [event.round for event in events if event.kind == "removed"] == [25]
    assert [event.round for event in events if event.kind == "refused"] == list(range(1, 16))


@pytest.mark.parametrize("content", [[], ["notes.json"]])
def test_a_directory_that_holds_nothing_of_ours_is_refused(tmp_path: Path, content: list[str]) -> None:
    for name in content:
        (tmp_path / name).write_text('{"a": 1}')
    with pytest.raises(InputError, match="holds no run, grid or federation"):
        story_of(tmp_path)
    with pytest.raises(InputError, match="holds no run, grid or federation"):
        story_of(tmp_path / "nowhere")


def test_the_pages_budget_of_a_run_holds(tmp_path: Path) -> None:
    write_run(tmp_path)
    story = story_of(tmp_path)
    assert len(page(packed(story))) < 500_000
    assert story.course is not None
    assert story.course.mixing is not None
    assert len(story.course.mixing.rounds) == 99
