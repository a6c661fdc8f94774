"""`fedcap compare`: dry runs, tables, JSON, and mistakes in one line before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from grid_tools import FLAGS, TINY, Here
from helpers import call

from fedcap.cli.grid_progress import GridTable
from fedcap.experiments import local
from fedcap.experiments.grid import Grid
from fedcap.experiments.store import CellStore, GridStatus


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids are played in this process: workers take seconds to start."""
    monkeypatch.setattr(local.LocalEngine, "run", lambda self, *given: Here().run(*given))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "nothing to compare: give methods, rules, attacks, data sets, seeds or an axis"),
        (["--methods", "fedcapp"], "unknown method 'fedcapp': did you mean 'fedcap'"),
        (["--seeds", "1-x"], "seeds are whole numbers from 0, such as 0-4,7 (got '1-x')"),
        (["--axis", "lr"], "--axis lr: expected KEY=V1,V2, such as training.lr=0.1,0.05"),
        (["--axis", "rounds=1", "--axis", "rounds=2"], "--axis rounds is given twice"),
        (["--axis", "lr=0.1"], "unknown setting 'lr': it is an option of the training, training.lr"),
        (["--seeds", "0", "--engine", "slurm"], "'slurm' is not one of 'local', 'ray'"),
        (["--seeds", "0", "--jobs", "0"], "a grid needs at least one worker (got 0)"),
        (["--seeds", "0", "--against", "ditto"], "no method 'ditto' in this grid"),
        (["absent.toml"], "cannot read absent.toml: No such file or directory"),
        (["--datasets", "emnist", "--methods", "fedavg"], "emnist"),
    ],
)
@pytest.mark.usefixtures("data_folder")
def test_a_mistake_is_one_line_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    code, out, err = call(capsys, "compare", *flags, "--out", "grid")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err
    assert not Path("grid").exists()


@pytest.mark.usefixtures("here")
def test_a_grid_prints_its_tables_and_is_not_played_twice(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["compare", "--methods", "fedavg,fedcap", "--seeds", "0-1", *FLAGS, "--out", "grid"]
    code, dry, _ = call(capsys, *flags, "--dry-run")
    assert code == 0
    assert dry.startswith("4 runs: 0 done, 4 would be played\n  digits · fedavg · none · seed 0\n")
    assert not Path("grid").exists()
    code, out, err = call(capsys, *flags, "-q")
    assert (code, err) == (0, "")
    assert "fedavg" in out
    assert "Saved: grid/results.csv" in out
    code, again, _ = call(capsys, *flags, "-q")
    assert again == out
    found = json.loads(call(capsys, *flags, "--json", "-q")[1])
    assert (found["directory"], found["runs"], found["done"], found["failed"]) == ("grid", 4, 4, [])
    assert [(row["method"], row["seeds"]) for row in found["rows"]] == [("fedavg", "0 1"), ("fedcap", "0 1")]
    plan = json.loads(call(capsys, *flags, "--attacks", "none,ipm", "--dry-run", "--json")[1])
    assert [run["state"] for run in plan["runs"]] == ["done", "done", "left", "left"] * 2


@pytest.mark.usefixtures("here")
def test_failures_are_told_in_the_end_and_the_exit_code_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["compare", "--methods", "local", "--seeds", "0-1", *FLAGS, "--out", "grid"]
    cells = Grid(methods="local", seeds="0-1", **TINY).cells()
    store = CellStore("grid")
    store.open()
    store.fail(cells[1], "for a reason")
    code, out, err = call(capsys, *flags)
    assert code == 1
    assert err == "fedcap: 1 of 2 runs failed: why is in grid/failed; --retry tries them again\n"
    assert "local" in out
    assert f"  {cells[1]} failed: for a reason" in call(capsys, *flags, "--dry-run")[1]
    assert call(capsys, *flags, "--retry", "-q")[0] == 0
    assert store.failure(cells[1]) is None


def test_the_plain_lines_tell_how_far_each_run_is(capsys: pytest.CaptureFixture[str]) -> None:
    cells = Grid(methods="fedavg,fedcap", rounds=4).cells()
    clock = [0.0]
    with GridTable(GridStatus(cells, {}, {})) as table:
        assert table._plain is not None
        table._plain._clock, table._plain._next = lambda: clock[0], 10.0
        table.started(cells[0])
        table.progressed(cells[0], 1, 50.0)
        table.failed(cells[1], "for a reason")
        clock[0] = 12.0
        table.progressed(cells[0], 2, None)
    assert capsys.readouterr().err.splitlines() == [
        "fedcap: digits · fedcap · none · seed 0 failed: for a reason",
        "fedcap: 0 of 2 runs done, 1 failed, 1 under way: digits · fedavg · none · seed 0, round 2/4,"
        " about 5 s left",
    ]


def test_nothing_is_said_if_it_is_to_be_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    cells = Grid(methods="fedavg", rounds=4).cells()
    with GridTable(GridStatus(cells, {}, {}), quiet=True) as table:
        table.started(cells[0])
        table.failed(cells[0], "for a reason")
    assert capsys.readouterr() == ("", "")
