"""What the tests of damaged run directories share: copies to damage, and the errors that are expected."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import call
from run_tools import SMALL, copy

import fedcap
from fedcap import runs as records
from fedcap.runs import RESULT

Damage = Callable[[Path], None]

REMEDY = re.compile(
    r"repeat (it|the run) in a new directory|remove it and resume the run|start a new run|another directory"
    r"|give the data that it began with|there is no config\.toml|cannot write to .*\.lock"
)


def two_runs(path: Path) -> Path:
    """Make a finished run, and another one."""
    fedcap.Experiment(**SMALL).run(out=path / "whole")
    fedcap.Experiment(**{**SMALL, "seed": 1}).run(out=path / "other")
    return path


def damaged(home: Path, tmp_path: Path, finished: bool, damage: Callable[[Path], None]) -> list[Path]:
    """Return three damaged copies of the run."""
    runs = []
    for number in range(3):
        (tmp_path / str(number)).mkdir()
        copy(home / "other", tmp_path / str(number) / "other")
        run = copy(home / "whole", tmp_path / str(number) / "run", *[RESULT] * (not finished))
        damage(run)
        runs.append(run)
    return runs


def check_error(error: str, run: Path, named: str) -> None:
    assert error.count("\n") == 0
    assert len(error) < 1000
    assert named in error
    assert str(run) in error
    assert REMEDY.search(error), error


def check_result(run: Path, whole: Path) -> None:
    """Assert that a run has ended with the result of the whole one."""
    expected, read = records.read(whole), records.read(run)
    assert read.result is not None
    content = [json.loads(result.to_json()) for result in (read.result, expected.result)]
    for one in content:
        del one["seconds"], one["seconds_server"]
    assert content[0] == content[1]


def assert_error_or_same_result(
    home: Path,
    runs: list[Path],
    capsys: pytest.CaptureFixture[str],
    named: str,
    goes_on: bool,
    readable: bool,
) -> None:
    """Resume the first copy, run in the second, and read the third."""
    code, _, err = call(capsys, "run", "--resume", runs[0])
    config = ["--set=" + line for line in CONFIG_LINES]
    code2, _, err2 = call(capsys, "run", "--out", runs[1], *config)
    for run, found, error in ((runs[0], code, err), (runs[1], code2, err2)):
        assert found == (0 if goes_on else 2), error
        if goes_on:
            check_result(run, home / "whole")
        else:
            assert error.startswith("fedcap: ")
            check_error(error.strip(), run, named)
    if readable:
        read, whole = records.read(runs[2]), records.read(home / "whole")
        assert read.rounds == whole.rounds[: len(read.rounds)]
        assert read.result in (None, whole.result)
    else:
        with pytest.raises(fedcap.InputError) as error:
            records.read(runs[2])
        check_error(str(error.value), runs[2], named)


CONFIG_LINES = [
    "dataset.clients=6",
    "dataset.samples=30",
    "attack=min-max",
    "rounds=3",
    "participation=0.7",
    "training.lr=0.05",
    "training.epochs=1",
    "workers=1",
]
"""`SMALL`, as it is written on the command line."""
