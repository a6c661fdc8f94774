"""Resuming: a run continues, also with more rounds or moved data, and never with changed settings."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import Killed, Killer, call, refused
from run_tools import SMALL, assert_same, copy, killed, left_behind

import fedcap
from fedcap import runs as records
from fedcap.runs import checkpoint as snapshot
from fedcap.runs.provenance import Shorter
from fedcap.simulation import load_experiment
from fedcap.simulation import settings as setup

OWN_ATTACK = """
from dataclasses import dataclass
from fedcap.attacks import Attack

@dataclass(frozen=True)
class Mine(Attack):
    def craft(self, view):
        return {factor} * view.updates[view.malicious]
"""


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 3 rounds."""
    path = tmp_path_factory.mktemp("runs") / "short"
    fedcap.Experiment(**SMALL).run(out=path)
    return path


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 5 rounds from the start."""
    path = tmp_path_factory.mktemp("runs") / "long"
    fedcap.Experiment(**{**SMALL, "rounds": 5}).run(out=path)
    return path


# --- Extending


def test_an_extended_run_has_the_bits_of_a_long_one(
    short: Path, long: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy(short, tmp_path / "run")
    code, out, err = call(capsys, "run", "--resume", run, "--rounds", 5)
    assert (code, err) == (0, "")
    assert "5 rounds" in out
    assert_same(run, long, measured=[3])
    assert (run / "config.toml").read_text() == (long / "config.toml").read_text()
    found, expected = records.read(run).provenance, records.read(long).provenance
    assert replace(found, extended=[]) == expected
    before = records.read(short).provenance
    assert found.extended == [Shorter(3, before.digest, before.settings_digest)]
    assert call(capsys, "run", "--resume", run)[0] == 0  # finished: its result is printed again
    assert_same(run, long, measured=[3])


def test_a_run_can_be_extended_twice_and_before_it_has_finished(long: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for rounds, after in ((3, 2), (4, 3)):
        experiment = fedcap.Experiment(**{**SMALL, "rounds": rounds})
        with pytest.raises(Killed):
            experiment.run(out=run, observers=[Killer(after)], extend=True)
    load_experiment(run, rounds=5).run(out=run, extend=True)
    assert_same(run, long)
    assert [shorter.rounds for shorter in records.read(run).provenance.extended] == [3, 4]


@pytest.mark.parametrize("attack", ["min-max", "attack_tools:Counting"])
def test_only_the_evaluation_of_the_old_last_round_is_more_than_a_long_run_has(
    tmp_path: Path, attack: str
) -> None:
    settings = {**SMALL, "eval_every": 2, "attack": attack}
    fedcap.Experiment(**settings).run(out=tmp_path / "run")
    fedcap.Experiment(**{**settings, "rounds": 5}).run(out=tmp_path / "run", extend=True)
    fedcap.Experiment(**{**settings, "rounds": 5}).run(out=tmp_path / "long")
    (result, tensors, rounds), (result2, tensors2, rounds2) = (
        left_behind(tmp_path / name) for name in ("run", "long")
    )
    assert [one["round"] for one in rounds if one["accuracy"]] == [2, 3, 4, 5]
    rounds[2]["accuracy"] = rounds[2]["tallies"] = None
    assert rounds == rounds2
    assert result | {"rounds_to_80": None} == result2 | {"rounds_to_80": None}
    assert all(tensors[name].equal(tensor) for name, tensor in tensors2.items())


# Extending writes provenance, config and rounds.jsonl, then a line and a checkpoint per round, the result.
@pytest.mark.parametrize(
    "write", [2, 5, *(pytest.param(write, marks=pytest.mark.slow) for write in (1, 3, 4, 6, 7, 8))]
)
def test_a_run_killed_while_it_is_extended_is_either_the_old_or_the_new_one(
    short: Path, long: Path, tmp_path: Path, write: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run = copy(short, tmp_path / "run")
    assert killed(run, write, SMALL, rounds=5, extend=True)
    read = records.read(run)
    assert read.settings.rounds == (3 if write <= 2 else 5)
    assert (read.result is not None) == (write <= 2)
    old = copy(run, tmp_path / "old")
    assert call(capsys, "run", "--resume", old)[0] == 0
    assert_same(*((old, short) if write <= 2 else (old, long, [3])))
    assert call(capsys, "run", "--resume", run, "--rounds", 5)[0] == 0
    assert_same(run, long, measured=[3])


def test_the_result_of_before_is_not_taken_for_that_of_an_extended_run(
    short: Path, long: Path, tmp_path: Path
) -> None:
    run = copy(short, tmp_path / "run")
    assert killed(run, 3, SMALL, rounds=5, extend=True)  # config.toml is the new one
    (run / "result.json").write_bytes((short / "result.json").read_bytes())  # as if killed before it went
    assert records.read(run).result is None
    assert fedcap.Experiment(**{**SMALL, "rounds": 5}).run(out=run).rounds == 5
    assert_same(run, long, measured=[3])


# --- Data that moved


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An unfinished run on the user's own file, mine.npz."""
    monkeypatch.setenv("FEDCAP_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    save(Path("mine.npz"))
    with pytest.raises(Killed):
        own_experiment("mine.npz").run(out="run", observers=[Killer(2)])
    return tmp_path / "run"


def save(path: Path, shift: float = 0.0, compressed: bool = False) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 6)).astype(np.float32) + shift, np.arange(120) % 3
    (np.savez_compressed if compressed else np.savez)(path, x=x, y=y)


def own_experiment(path: str) -> fedcap.Experiment:
    return fedcap.Experiment(**{**SMALL, "dataset": {"name": path, "clients": 4}})


@pytest.mark.parametrize("compressed", [False, True])
def test_a_run_goes_on_after_its_data_moved(
    own: Path, compressed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = own_experiment("mine.npz").run(out="whole")
    Path("mine.npz").unlink()
    code, _, err = call(capsys, "run", "--resume", "run")
    assert (code, err.count("\n")) == (2, 1)
    assert f"no longer at {own.parent / 'mine.npz'}: give its new place (--dataset PATH)" in err
    Path("new").mkdir()
    save(Path("new/yours.npz"), compressed=compressed)  # if so, another file with the same samples
    code, _, err = call(capsys, "run", "--resume", "run", "--dataset", "new/yours.npz")
    assert (code, err) == (0, "")
    assert_same(own, own.parent / "whole")
    config = tomllib.loads((own / "config.toml").read_text())
    assert config["dataset"]["path"] == str(own.parent / "new" / "yours.npz")
    assert load_experiment(own).run(out=own).tacc == whole.tacc  # the directory has the new place


def test_a_finished_run_takes_the_new_place_of_its_data(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_experiment("mine.npz").run(out="run")
    Path("mine.npz").rename("yours.npz")
    code, _, err = call(capsys, "run", "--resume", "run", "--dataset", "yours.npz", "--rounds", 4)
    assert (code, err) == (0, "")
    assert records.read(own).settings.dataset_name == "yours"
    assert own_experiment("yours.npz").model_copy(update={"rounds": 4}).run(out="run").rounds == 4


@pytest.mark.parametrize("finished", [False, True])
def test_a_run_does_not_go_on_with_other_data(
    own: Path, finished: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if finished:
        own_experiment("mine.npz").run(out="run")
    before = {path: path.read_bytes() for path in own.iterdir()}
    save(Path("other.npz"), shift=1)
    code, _, err = call(capsys, "run", "--resume", "run", "--dataset", "other.npz")
    assert (code, err.count("\n")) == (2, 1)
    assert "its data has changed; give the data that it began with" in err
    code, _, err = call(capsys, "run", "--resume", "run", "--dataset", "digits")
    assert (code, err.count("\n")) == (2, 1)
    assert "the run is on mine (npz), not on digits (digits)" in err
    assert {path: path.read_bytes() for path in own.iterdir()} == before


# --- Other differences between runs


def test_a_run_with_the_users_code_edited_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    code = tmp_path / "resume_own_attack.py"
    code.write_text(OWN_ATTACK.format(factor="-1.5"))
    settings = {**SMALL, "attack": "resume_own_attack:Mine"}
    first = fedcap.Experiment(**settings).run(out=tmp_path / "run")
    assert fedcap.Experiment(**settings).run(out=tmp_path / "run") == first
    code.write_text(OWN_ATTACK.format(factor="-2.5"))
    for unfinished in (False, True):
        if unfinished:
            (tmp_path / "run" / "result.json").unlink()
        with refused("changed-code"):
            fedcap.Experiment(**settings).run(out=tmp_path / "run")
        with refused("changed-code"):
            load_experiment(tmp_path / "run", rounds=9).run(out=tmp_path / "run", extend=True)


def test_a_run_of_a_version_that_computes_otherwise_is_another_one(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedcap.simulation import recording

    for module in (setup, recording, recording):
        monkeypatch.setattr(module, "COMPUTES", setup.COMPUTES + 1)
    with refused("other-version"):
        fedcap.Experiment(**SMALL).run(out=short)


def test_a_directory_of_a_run_on_another_device_is_another_run(short: Path, tmp_path: Path) -> None:
    run = copy(short, tmp_path / "run", "provenance.json")
    config, facts = run / "config.toml", records.read(short).provenance
    config.write_text(config.read_text().replace('"cpu"', '"cuda:7"'))
    settings = records.RunDirectory(run).settings()
    facts = replace(facts, digest="gpu", settings_digest=settings.digest())
    (run / "provenance.json").write_text(facts.to_json())
    with refused("other-run", str(run)):
        fedcap.Experiment(**SMALL).run(out=run)


def test_the_rounds_of_server_checkpoint_and_lines_must_agree(short: Path, tmp_path: Path) -> None:
    run = copy(short, tmp_path / "run", "result.json")
    about, tensors = snapshot.unpack(run / "checkpoint.safetensors")
    tensors["server.round"] += 1
    (run / "checkpoint.safetensors").write_bytes(snapshot.pack(about, tensors))
    with refused("damaged-run"):
        load_experiment(run).run(out=run)


def test_what_does_not_decide_the_result_may_be_edited(short: Path, tmp_path: Path) -> None:
    run = copy(short, tmp_path / "run", "result.json")
    config = (run / "config.toml").read_text()
    assert "workers = 1\n" in config
    (run / "config.toml").write_text(
        config.replace("workers = 1\n", "").replace("every = 1", "every = 1 # !")
    )
    load_experiment(run, workers=1).run(out=run)
    assert_same(run, short)


# --- The command line


def test_the_config_of_a_run_repeats_it_in_a_new_directory(
    short: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {path: path.read_bytes() for path in short.iterdir()}
    code, _, err = call(capsys, "run", short / "config.toml")
    assert (code, err) == (0, "")
    (again,) = Path("runs").iterdir()
    assert_same(again, short)
    assert {path: path.read_bytes() for path in short.iterdir()} == before


@pytest.mark.slow
def test_the_demo_can_be_taken_twice_with_other_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedcap.experiments import demo

    monkeypatch.setattr(demo, "ATTACKS", ("none", "min-max", "ipm"))
    monkeypatch.chdir(tmp_path)
    tables = {}
    for name, flags in (
        ("one", ["--rounds=1"]),
        ("two", ["--rounds=2"]),
        ("other", ["--rounds=1", "--seed=1"]),
    ):
        code, out, err = call(capsys, "demo", "--workers=1", "--out=tour", "--quiet", *flags)
        assert (code, err) == (0, "")
        tables[name] = (tmp_path / "tour" / "table.json").read_text()
        said = rf"; {2 if name == 'two' else 1} rounds?, seed {int(name == 'other')}"
        assert re.search(said, " ".join(out.split()))
    assert len(set(tables.values())) == 3
    runs = [records.read(path) for path in Path("tour/cells").iterdir()]
    assert len(runs) == 27
    assert (
        sorted((run.settings.rounds, run.settings.seed) for run in runs)
        == [(1, 0)] * 9 + [(1, 1)] * 9 + [(2, 0)] * 9
    )
    finished = {run.path: (run.path / "result.json").stat().st_mtime_ns for run in runs}
    call(capsys, "demo", "--workers=1", "--out=tour", "--rounds=1")
    assert (tmp_path / "tour" / "table.json").read_text() == tables["one"]
    assert {path: (path / "result.json").stat().st_mtime_ns for path in finished} == finished


def test_a_run_interrupted_before_it_wrote_anything_names_no_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(setup.Setup, "load_data", interrupted)
    code, _, err = call(capsys, "run", "--workers=1")
    assert (code, err) == (130, "fedcap: interrupted\n")
    assert not list(tmp_path.iterdir())
