"""A run's directory: a kill at any moment loses nothing and changes no bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import refused
from run_tools import assert_same, killed

import fedcap
from fedcap import runs
from fedcap.cli import main
from fedcap.runs import checkpoint as snapshot
from fedcap.simulation import Simulation, load_experiment, recording

SETTINGS = {
    "attack": {"name": "min-max"},
    "rounds": 4,
    "participation": 0.6,
    "training": {"lr": 0.05, "epochs": 1},
    "workers": 1,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    fedcap.Experiment(**SETTINGS).run(out=path)
    return path


# The writes of a run: config, provenance, rounds.jsonl, then a line and a checkpoint per round, the result.
@pytest.mark.parametrize("write", [1, 3, 4, 5, 8, 12])
@pytest.mark.slow
def test_a_run_killed_inside_any_write_ends_with_the_same_bits(
    whole: Path, tmp_path: Path, write: int
) -> None:
    assert killed(tmp_path / "run", write, SETTINGS)
    fedcap.Experiment(**SETTINGS).run(out=tmp_path / "run")
    assert_same(tmp_path / "run", whole)


@pytest.mark.slow
def test_a_run_killed_in_mid_round_with_workers_ends_with_the_same_bits(whole: Path, tmp_path: Path) -> None:
    settings = "attack=min-max rounds=4 participation=0.6 training.lr=0.05 training.epochs=1"
    flags = ["--workers=2", f"--out={tmp_path / 'run'}", *(f"--set={each}" for each in settings.split())]
    command = [sys.executable, "-m", "fedcap", "run", *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not (tmp_path / "run" / "checkpoint.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    process.wait()
    load_experiment(tmp_path / "run").run(out=tmp_path / "run")
    assert_same(tmp_path / "run", whole)


def test_checkpoints_may_be_rarer_than_rounds(whole: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "checkpoint_every": 3}
    assert killed(tmp_path / "run", 9, settings)
    fedcap.Experiment(**settings).run(out=tmp_path / "run")
    assert_same(tmp_path / "run", whole)


def test_everything_is_written_and_can_be_read_back(whole: Path) -> None:
    names = {entry.name for entry in whole.iterdir()}
    assert names - {"clients.bin"} == {
        ".lock",
        "checkpoint.safetensors",
        "config.toml",
        "mixing.bin",
        "provenance.json",
        "result.json",
        "rounds.jsonl",
    }
    experiment = load_experiment(whole)
    assert experiment.settings() == fedcap.Experiment(**SETTINGS).settings()
    config = tomllib.loads((whole / "config.toml").read_text())
    assert config["method"]["alpha"] == 5
    assert config["training"]["batch_size"] == 10
    provenance = json.loads((whole / "provenance.json").read_text())
    assert set(provenance["malicious"]) == experiment.attackers(tuple(provenance["clients"]))
    assert provenance["digest"] == experiment.digest()
    assert provenance["versions"]["torch"] == torch.__version__
    result = runs.read(whole).result
    assert result is not None
    assert result.rounds == 4
    assert [record.round for record in result.history] == [1, 2, 3, 4]
    assert result.tacc == max(result.tacc_shared or 0, result.tacc_personal)


def test_a_run_with_other_workers_is_the_same_run(whole: Path) -> None:
    workers = fedcap.Experiment(**{**SETTINGS, "workers": 2})
    assert workers.run(out=whole).rounds == 4  # no result depends on the workers


@pytest.fixture
def unfinished(whole: Path, tmp_path: Path) -> Path:
    """A copy of the run, killed before it wrote its result."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for entry in whole.iterdir():
        if entry.name != "result.json":
            (copy / entry.name).write_bytes(entry.read_bytes())
    return copy


def test_a_checkpoint_of_another_layout_is_refused(unfinished: Path) -> None:
    about, tensors = snapshot.unpack(unfinished / "checkpoint.safetensors")
    other = snapshot.pack(replace(about, layout="other"), tensors)
    (unfinished / "checkpoint.safetensors").write_bytes(other)
    with refused("other-version"):
        load_experiment(unfinished).run(out=unfinished)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"

    def onto_a_full_disk(simulation: Simulation, course: str) -> bytes:
        (run / f".checkpoint.safetensors.{os.getpid()}.partial").symlink_to("/dev/full")
        return b"weights"

    monkeypatch.setattr(recording, "checkpoint", onto_a_full_disk)
    with pytest.raises(SystemExit) as stop:
        main(["run", "--out", str(run), "--rounds=2", "--workers=1", "--set=training.epochs=1"])
    assert stop.value.code == 1
    error = capsys.readouterr().err
    assert "no space is left on the disk" in error
    assert len(error.strip().splitlines()) == 1
    assert len((run / "rounds.jsonl").read_text().splitlines()) == 1  # what was written is there
