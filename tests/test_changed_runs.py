"""Runs whose files were changed: files of different runs are errors, and derived files are written again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from damage_tools import CONFIG_LINES, Damage, assert_error_or_same_result, check_result, damaged, two_runs
from helpers import call
from run_tools import SMALL, left_behind
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import fedcap
from fedcap import runs as records
from fedcap.runs import CHECKPOINT, CONFIG, PROVENANCE, RESULT, ROUNDS, checkpoint


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and another one."""
    return two_runs(tmp_path_factory.mktemp("runs"))


def edit(name: str, old: str, new: str) -> Damage:
    def damage(run: Path) -> None:
        text = (run / name).read_text()
        assert old in text
        (run / name).write_text(text.replace(old, new, 1))

    return damage


def reorder(*order: int) -> Damage:
    def damage(run: Path) -> None:
        lines = (run / ROUNDS).read_text().splitlines()
        (run / ROUNDS).write_text("".join(lines[at] + "\n" for at in order))

    return damage


def line_of_another_run(run: Path) -> None:
    lines, others = ((path / ROUNDS).read_text().splitlines() for path in (run, run.parent / "other"))
    (run / ROUNDS).write_text("\n".join([lines[0], others[1], lines[2]]) + "\n")


def unsigned(run: Path) -> None:
    lines = [json.loads(line) for line in (run / ROUNDS).read_text().splitlines()]
    del lines[1]["checksum"]
    (run / ROUNDS).write_text("".join(json.dumps(line) + "\n" for line in lines))


def one_round_more(run: Path) -> None:
    directory = records.RunDirectory(run)
    directory.append(replace(directory.rounds()[-1], round=4))


def long_line(run: Path) -> None:
    with open(run / ROUNDS, "a") as file:
        file.write("x" * 20_000_000 + "\n")


def flip(where: Callable[[bytes], int], mask: int = 1) -> Damage:
    def damage(run: Path) -> None:
        content = bytearray((run / CHECKPOINT).read_bytes())
        content[where(bytes(content))] ^= mask
        (run / CHECKPOINT).write_bytes(content)

    return damage


def header_size(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def zero_tensors(run: Path) -> None:
    content = (run / CHECKPOINT).read_bytes()
    size = header_size(content)
    (run / CHECKPOINT).write_bytes(content[:size] + bytes(len(content) - size))


def another_round(run: Path) -> None:
    with safe_open(run / CHECKPOINT, framework="pt") as file:
        about = file.metadata()["run"].replace('"round": 3', '"round": 2')
    save_file(load_file(run / CHECKPOINT), run / CHECKPOINT, metadata={"run": about})


def nested(name: str, start: str = "") -> Damage:
    return lambda run: (run / name).write_text(start + "[" * 100_000) and None


LINES = {
    "shuffled": (reorder(0, 2, 1), "line 2, is of round 3"),
    "doubled": (reorder(0, 1, 1, 2), "line 3, is of round 2"),
    "one missing": (reorder(0, 2), "line 2, is of round 3"),
    "first missing": (reorder(1, 2), "line 1, is of round 2"),
    "edited": (edit(ROUNDS, '"personal": ', '"personal": 1'), "line 1, was changed"),
    "an edited time": (edit(ROUNDS, '"total": ', '"total": 9'), "line 1, was changed"),
    "another run's line": (line_of_another_run, "line 2, was changed, or is not of this run"),
    "a line without a checksum": (unsigned, "line 2, was changed"),
    "renumbered": (edit(ROUNDS, '"round": 2', '"round": 1'), "line 2, is of round 1"),
    "a number too long": (edit(ROUNDS, '"bytes": ', '"bytes": ' + "9" * 5000), "line 1, cannot be read"),
}
CONFIGS = {
    "another seed": (edit(CONFIG, "seed = 0", "seed = 1"), "config.toml was changed since the run began"),
    "more rounds": (edit(CONFIG, "rounds = 3", "rounds = 4"), "config.toml was changed since the run began"),
    "fewer rounds": (edit(CONFIG, "rounds = 3", "rounds = 2"), "config.toml was changed since the run began"),
    "an option": (edit(CONFIG, "alpha = ", "alpha = 1"), "config.toml was changed since the run began"),
    "an unknown key": (edit(CONFIG, "seed = 0", "seed = 0\nfoo = 1"), "config.toml was changed"),
    "a date": (edit(CONFIG, "seed = 0", "seed = 0\nfoo = 2026-11-16"), "config.toml was changed"),
    "nesting": (nested(CONFIG, "a = "), "config.toml is not valid TOML"),
    "a number too long": (edit(CONFIG, "seed = 0", "seed = " + "1" * 5000), "config.toml is not valid TOML"),
}
FACTS = {
    "another digest of the settings": (
        edit(PROVENANCE, '"settings_digest": "', '"settings_digest": "f'),
        "config.toml was changed since the run began",
    ),
    "another course": (edit(PROVENANCE, '"course": "', '"course": "f'), "rounds.jsonl, line 1, was changed"),
    "nesting": (nested(PROVENANCE), "provenance.json cannot be read"),
}


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "unfinished"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [*LINES.values(), *CONFIGS.values(), *FACTS.values()],
    ids=[
        *(f"rounds-{name}" for name in LINES),
        *(f"config-{name}" for name in CONFIGS),
        *(f"provenance-{name}" for name in FACTS),
    ],
)
def test_what_was_changed_is_not_believed(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Damage, said: str, finished: bool
) -> None:
    runs = damaged(home, tmp_path, finished, damage)
    if said.startswith("rounds.jsonl, line 1") and not finished:  # resuming sees what is wrong before that
        said = "is not of this run: course is another"
        assert call(capsys, "run", "--resume", runs[0])[2].count(said) == 1
        return
    assert_error_or_same_result(home, runs, capsys, said, goes_on=False, readable=False)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (edit(RESULT, '"tacc": ', '"tacc": 1'), "is not the result of the rounds in rounds.jsonl"),
        (edit(RESULT, '"seconds": ', '"seconds": 1'), "is not the result of the rounds in rounds.jsonl"),
        (edit(RESULT, '"rounds": 3', '"rounds": 2'), "result.json counts 2 rounds, rounds.jsonl has 3"),
        (
            edit(PROVENANCE, '"malicious": [\n    "', '"malicious": [\n    "x'),
            "is not the result of the rounds",
        ),
        (nested(RESULT), "result.json cannot be read"),
        (one_round_more, "result.json counts 3 rounds, rounds.jsonl has 4"),
        (long_line, "line 4, cannot be read"),
    ],
    ids=["a figure", "a time", "its rounds", "who was malicious", "nesting", "a line more", "a long line"],
)
def test_a_finished_run_whose_result_does_not_follow_is_an_error(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Damage, said: str
) -> None:
    runs = damaged(home, tmp_path, True, damage)
    assert_error_or_same_result(home, runs, capsys, said, goes_on=False, readable=False)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (zero_tensors, "is damaged: its checksum does not match"),
        (flip(lambda content: len(content) - 1), "is damaged: its checksum does not match"),
        (flip(header_size, 128), "is damaged: its checksum does not match"),
        (flip(lambda content: content.index(b'"dtype"') + 3), "is not a checkpoint"),
        (flip(lambda content: content.index(b"server.round")), "is damaged: its checksum does not match"),
        (flip(lambda content: 7, 128), "is not a checkpoint"),
        (another_round, "is damaged: its checksum does not match"),
        (edit(PROVENANCE, '"malicious": [\n    "', '"malicious": [\n    "x'), "malicious is another"),
        (edit(PROVENANCE, '"weights": ', '"weights": 1'), "weights is another"),
        (edit(PROVENANCE, '"data_hash": "', '"data_hash": "f'), "its data has changed"),
    ],
    ids=["zeros", "last", "first", "header", "name", "size", "round", "malicious", "weights", "data"],
)
def test_an_unfinished_run_with_a_changed_state_is_an_error(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Damage, said: str
) -> None:
    runs = damaged(home, tmp_path, False, damage)
    assert_error_or_same_result(home, runs, capsys, said, goes_on=False, readable=True)


def lock_directory(run: Path) -> None:
    (run / ".lock").unlink()
    (run / ".lock").mkdir()


def test_a_directory_in_place_of_the_lock_is_an_error(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = damaged(home, tmp_path, False, lock_directory)
    assert_error_or_same_result(home, runs, capsys, "/.lock: Is a directory", goes_on=False, readable=True)


def linked_lock(run: Path) -> None:
    (run / ".lock").unlink()
    (run.parent / "thesis").write_text("years of work")
    (run / ".lock").symlink_to(run.parent / "thesis")


def earlier_checkpoint(run: Path) -> None:
    fedcap.Experiment(**{**SMALL, "rounds": 2}).run(out=run.parent / "earlier")
    (run.parent / "earlier" / CHECKPOINT).replace(run / CHECKPOINT)


@pytest.mark.parametrize(
    "damage",
    [
        linked_lock,
        earlier_checkpoint,
        lambda run: (run / ".result.json.1.partial").write_text("half") and None,
        lambda run: (
            os.truncate(run / ROUNDS, (run / ROUNDS).stat().st_size - 3) or (run / CHECKPOINT).unlink()
        ),
        long_line,
        edit(PROVENANCE, '"digest": "', '"digest": "f'),
        lambda run: (run / ROUNDS).write_bytes((run / ROUNDS).read_bytes().replace(b"\n", b"\r\n")) and None,
    ],
    ids=["lock", "earlier", "partial", "cut line", "a line beyond the checkpoint", "digest", "line ends"],
)
def test_what_can_be_made_again_is(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Damage
) -> None:
    runs = damaged(home, tmp_path, False, damage)
    for run, arguments in (
        (runs[0], ["--resume"]),
        (runs[1], [*("--set=" + s for s in CONFIG_LINES), "--out"]),
    ):
        code, _, err = call(capsys, "run", *arguments, run)
        assert code == 0, err
        check_result(run, home / "whole")
        result, tensors, _ = left_behind(run)
        assert result == left_behind(home / "whole")[0]
        expected = left_behind(home / "whole")[1]
        assert all(tensors[name].equal(tensor) for name, tensor in expected.items())
        thesis = run.parent / "thesis"
        assert not thesis.exists() or thesis.read_text() == "years of work"


def test_any_flipped_byte_of_a_checkpoint_is_found(home: Path, tmp_path: Path) -> None:
    content = (home / "whole" / CHECKPOINT).read_bytes()
    path = tmp_path / CHECKPOINT
    expected = checkpoint.unpack(home / "whole" / CHECKPOINT)[1]
    errors = 0
    places = [*range(0, header_size(content), 7), *range(header_size(content), len(content), 9973)]
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            found = checkpoint.unpack(path)[1]
        except fedcap.InputError:
            errors += 1
        else:  # a space in the padding, say
            assert found.keys() == expected.keys()
            assert all(found[name].equal(tensor) for name, tensor in expected.items())
    assert errors > 0.9 * len(places)
