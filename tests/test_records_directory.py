"""A run's directory: one process at a time, nothing half written, and readable at any moment."""

from __future__ import annotations

import binascii
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import refused, round_record

from fedcap.report.tables import summary_table
from fedcap.runs import (
    Accuracy,
    ClientAccuracy,
    Provenance,
    Reason,
    RoundRecord,
    RunDirectory,
    read,
    summarise,
)

CLIENTS, MALICIOUS = ["u1", "u2", "u3"], ["u3"]
SETTINGS: dict[str, Any] = {
    "model": "mlp",
    "malicious": 0.4,
    "participation": 1.0,
    "rounds": 3,
    "seed": 4,
    "eval_every": 1,
    "checkpoint_every": 1,
    "device": "cuda:7",
    "dataset": {"name": "digits"},
    "method": {"name": "fedcap"},
    "attack": {"name": "ipm"},
    "training": {"lr": 0.05},
}
FACTS = Provenance({"python": "3.12"}, 1, 4, "0f", "da", "7a", 10, CLIENTS, MALICIOUS, course="c0")


def record(number: int, **facts: Any) -> RoundRecord:
    benign = {"u1": ClientAccuracy(60.0 + number, 50.0), "u2": ClientAccuracy(80.0 + number, 70.0)}
    measured = {
        "accuracy": Accuracy(70.0 + number, 60.0, benign),
        "scores": {"norm": {"u1": 1.0, "u2": 2.0, "u3": None}},
        "limits": {"norm": 10.0},
    }
    return round_record(number, CLIENTS, **measured | facts)


ROUNDS = [record(1), record(2, removed={"u3": Reason("norm", None, 10.0, "norm inf over 10")}), record(3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A run that has played all its rounds, and has not written its result."""
    with RunDirectory(tmp_path / "deep" / "run") as directory:
        directory.write_settings(SETTINGS)
        directory.write_provenance(FACTS)
        for played in ROUNDS:
            directory.append(played)
    return directory.path


def finish(path: Path, detects: bool = True) -> None:
    with RunDirectory(path) as directory:
        directory.write_result(summarise(directory.rounds(), CLIENTS, MALICIOUS, detects))


def test_a_finished_run_comes_back_as_it_was(path: Path) -> None:
    finish(path)
    run = read(str(path))
    assert run.path == path
    assert run.settings.model_dump(exclude={"workers", "track"}) == SETTINGS
    assert run.provenance == FACTS
    assert run.rounds == ROUNDS
    assert run.result == summarise(ROUNDS, CLIENTS, MALICIOUS, detects=True)


def test_an_unfinished_run_can_be_read_while_it_runs(path: Path) -> None:
    with RunDirectory(path):
        run = read(path)
    assert run.result is None
    assert run.rounds == ROUNDS


@pytest.mark.parametrize("cut", [1, 7, 200])
def test_a_line_cut_off_in_mid_write_is_left_out(path: Path, cut: int) -> None:
    rounds = path / "rounds.jsonl"
    rounds.write_bytes(rounds.read_bytes()[:-cut])
    assert read(path).rounds == ROUNDS[:2]
    with RunDirectory(path) as directory:
        directory.keep_rounds(2)
        directory.append(ROUNDS[2])
    assert read(path).rounds == ROUNDS


def test_a_line_is_on_the_disk_once_it_is_appended(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor)))
    with RunDirectory(path) as directory:
        directory.append(record(4))
    (status,) = synced
    assert os.path.samestat(status, (path / "rounds.jsonl").stat())
    assert status.st_size == (path / "rounds.jsonl").stat().st_size


def test_each_line_has_a_checksum_of_itself_and_of_those_before(path: Path) -> None:
    before = FACTS.course
    for played, line in zip(ROUNDS, (path / "rounds.jsonl").read_text().splitlines(), strict=True):
        found = json.loads(line)["checksum"]
        assert found == f"{binascii.crc32((before + played.to_json()).encode()):08x}"
        assert line == played.to_json()[:-1] + f', "checksum": "{found}"}}'
        before = found


def test_two_processes_cannot_run_in_one_directory(path: Path) -> None:
    code = "import sys; from fedcap.runs import RunDirectory; RunDirectory(sys.argv[1]).__enter__()"
    command = [sys.executable, "-c", code, str(path)]
    with RunDirectory(path):
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        with refused("busy", str(path)):
            RunDirectory(path).__enter__()
    assert second.stderr.splitlines()[-1].endswith(
        f"another process is running in {path}: wait until it ends, or give another directory"
    )
    assert subprocess.run(command, check=False).returncode == 0


def test_half_written_files_of_a_killed_process_are_removed_and_those_of_one_at_work_stay(path: Path) -> None:
    (path / ".checkpoint.safetensors.123.partial").write_bytes(b"half")
    (path / "mine.partial").write_bytes(b"kept")
    with RunDirectory(path):
        names = {entry.name for entry in path.iterdir()}
        (path / ".result.json.123.partial").write_bytes(b"half")
        with refused("busy"):
            RunDirectory(path).__enter__()
        assert (path / ".result.json.123.partial").exists()
    assert names == {".lock", "config.toml", "mine.partial", "provenance.json", "rounds.jsonl"}


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused("cannot-write"):
        RunDirectory(tmp_path / "file").__enter__()
    with refused("cannot-write"):
        RunDirectory(tmp_path / "file" / "run").__enter__()


def test_where_there_is_no_run_there_is_nothing_to_read(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "nowhere")
    assert (directory.settings(), directory.provenance(), directory.result()) == (None, None, None)
    assert directory.rounds() == []
    with refused("no-run"):
        read(tmp_path / "nowhere")


def test_a_run_without_its_provenance_is_damaged(path: Path) -> None:
    (path / "provenance.json").unlink()
    with refused("damaged-run"):
        read(path)


@pytest.mark.parametrize(
    ("name", "old", "new", "code", "place"),
    [
        ("rounds.jsonl", '"round": 2', '"round": "two"', "damaged-run", "rounds.jsonl, line 2"),
        ("config.toml", 'device = "cuda:7"', "", "damaged-config", "config.toml cannot be read: device"),
        ("provenance.json", '"seed"', '"seeds"', "damaged-run", "provenance.json cannot be read: seed"),
        ("result.json", '"tacc"', '"tac"', "damaged-result", "result.json cannot be read: tacc"),
        ("result.json", '"rounds": 3', '"rounds": 4', "damaged-run", "rounds.jsonl"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_says_where(
    path: Path, name: str, old: str, new: str, code: str, place: str
) -> None:
    finish(path)
    text = (path / name).read_text()
    assert old in text
    (path / name).write_text(text.replace(old, new, 1))
    with refused(code) as error:
        read(path)
    assert place in str(error.value)
    assert "\n" not in str(error.value)


def test_the_summary_has_a_line_per_run(path: Path) -> None:
    unfinished = read(path)
    finish(path)
    lost = [*ROUNDS[:2], record(3, diverged=["u1"])]
    diverged = replace(read(path), rounds=lost)
    table = summary_table([read(path), unfinished, diverged])
    assert table.dicts()[0] == {
        "data set": "digits",
        "method": "fedcap",
        "attack": "ipm",
        "seed": 4,
        "rounds": 3,
        "accuracy": 73.0,
        "shared": 73.0,
        "personal": 60.0,
        "worst client": 63.0,
        "macro-F1": None,
        "balanced accuracy": None,
        "AUC": None,
        "calibration error": None,
        "malicious": 1,
        "malicious removed": 1,
        "honest removed": 0,
        "diverged": False,
    }
    assert table.dicts()[1] == {**table.dicts()[0], "rounds": "3 of 3"}
    assert table.dicts()[2] == {**table.dicts()[0], "diverged": True}
    assert [note.startswith("†") for note in table.notes] == [False, True]
    assert len(summary_table([unfinished]).notes) == 1


def test_a_run_without_detection_has_no_removals_to_count(path: Path) -> None:
    unfinished = replace(read(path), rounds=[record(1, limits={}, accuracy=None)])
    finish(path, detects=False)
    for row in summary_table([read(path), unfinished]).dicts():
        assert (row["malicious"], row["malicious removed"], row["honest removed"]) == (1, None, None)
    assert row["accuracy"] is None
    assert row["rounds"] == "1 of 3"
