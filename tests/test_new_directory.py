"""New directories: runs that start at once have different ones, and a mistake makes none."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import call, refused
from run_tools import SMALL

from fedcap.runs import NewDirectory

QUICK = ["--rounds=1", "--workers=1", "--set=training.epochs=1", "--set=dataset.clients=4"]
CLAIM = """
import sys
from fedcap.runs import NewDirectory
sys.stdin.readline()
for _ in range(20):
    with NewDirectory(sys.argv[1], "run") as directory:
        print(directory.path.name)
"""
RUN = "import sys, json, fedcap; print(fedcap.Experiment(**json.loads(sys.argv[1])).run(out='run').to_json())"


def names(count: int) -> set[str]:
    return {"run", *(f"run+{number}" for number in range(2, count + 1))}


def test_processes_that_start_at_once_get_a_directory_each(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLAIM, str(tmp_path / "runs")]
    pipe = subprocess.PIPE
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(5)]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    found = [name for process in processes for name in process.communicate(timeout=60)[0].split()]
    assert sorted(found) == sorted(names(100))
    assert {entry.name for entry in (tmp_path / "runs").iterdir()} == names(100)


def test_runs_of_the_same_second_are_all_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda *_: "20261116-120000")
    told = [call(capsys, "run", *QUICK) for _ in range(3)]
    assert [code for code, _, _ in told] == [0, 0, 0]
    first = "digits-fedcap-none-seed0-20261116-120000"
    assert {path.name for path in Path("runs").iterdir()} == {first, f"{first}+2", f"{first}+3"}
    assert [out.split()[-1] for _, out, _ in told] == [f"runs/{first}{more}" for more in ("", "+2", "+3")]


def test_a_mistake_that_shows_with_the_data_leaves_no_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("bad.npz", x=np.full((20, 3), np.nan), y=np.arange(20) % 2)
    for out in ([], ["--out", "mine"]):
        code, _, err = call(capsys, "run", "--dataset", "bad.npz", *out)
        assert code == 2
        assert "not finite" in err
    assert {entry.name for entry in tmp_path.iterdir()} == {"bad.npz"}


def test_a_place_where_no_directory_can_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with refused("cannot-write"):
        NewDirectory(tmp_path / "runs", "run").__enter__()
    with refused("cannot-write"):
        NewDirectory(tmp_path, "x" * 300).__enter__()


@pytest.mark.slow
def test_processes_that_want_the_same_directory_never_get_anothers_result(tmp_path: Path) -> None:
    wanted = [{**SMALL, "seed": seed} for seed in (0, 1, 0, 1)]
    command = [sys.executable, "-c", RUN]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen([*command, json.dumps(one)], cwd=tmp_path, stdout=pipe, stderr=pipe, text=True)
        for one in wanted
    ]
    ended = [process.communicate(timeout=120) for process in processes]
    kept = json.loads((tmp_path / "run" / "provenance.json").read_text())["seed"]
    right = json.loads((tmp_path / "run" / "result.json").read_text())
    codes = [process.returncode for process in processes]
    assert codes.count(0) >= 1
    for one, code, (out, err) in zip(wanted, codes, ended, strict=True):
        if code == 0:
            assert one["seed"] == kept
            assert json.loads(out) == right
        else:
            last = err.splitlines()[-1]
            refused = "holds another run" in last and one["seed"] != kept
            assert refused or last.startswith("fedcap.runs.directory.BusyError: ")
