"""`fedcap compare`: tables, JSON, dry runs, failures, and outcomes that are saved and reused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from grid_tools import FLAGS, TINY, Here
from helpers import call

from fedcap import experiments
from fedcap.experiments import local
from fedcap.experiments.grid import Grid
from fedcap.experiments.store import CellStore


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids are played in this process: workers take seconds to start."""
    monkeypatch.setattr(local.LocalEngine, "run", lambda self, *given: Here().run(*given))


@pytest.mark.usefixtures("here")
def test_a_grid_prints_its_tables_and_is_not_played_twice(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["compare", "--method", "fedavg,fedcap", "--seed", "0-1", *FLAGS, "--out", "grid"]
    code, dry, _ = call(capsys, *flags, "--dry-run")
    assert code == 0
    assert dry.startswith("dry run: 4 runs, 0 done, 4 left\n  digits · fedavg · none · seed 0\n")
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
    plan = json.loads(call(capsys, *flags, "--attack", "none,ipm", "--dry-run", "--json")[1])
    assert [run["state"] for run in plan["runs"]] == ["done", "done", "left", "left"] * 2


@pytest.mark.usefixtures("here")
def test_failures_are_reported_at_the_end_and_the_exit_code_is_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["compare", "--method", "local", "--seed", "0-1", *FLAGS, "--out", "grid"]
    cells = Grid(methods="local", seeds="0-1", **TINY).cells()
    store = CellStore("grid")
    store.open()
    store.fail(cells[1], "for a reason")
    code, out, err = call(capsys, *flags)
    assert code == 1
    assert err == "fedcap: 1 of 2 runs failed: grid/failed says why; --retry runs them again\n"
    assert "local" in out
    assert f"  {cells[1]} failed: for a reason" in call(capsys, *flags, "--dry-run")[1]
    assert call(capsys, *flags, "--retry", "-q")[0] == 0
    assert store.failure(cells[1]) is None


@pytest.mark.usefixtures("here")
def test_outcomes_that_were_saved_count_as_done(capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("fedavg", "local"):
        flags = ["compare", "--method", method, "--seed", "0-1", *FLAGS]
        code, out, _ = call(capsys, *flags, "-o", method, "--save-outcomes", f"{method}.jsonl.gz", "-q")
        assert (code, f"{method}.jsonl.gz" in out) == (0, True)
    flags = ["compare", "--method", "fedavg,local,fedcap", "--seed", "0-1", *FLAGS, "--dry-run", "--json"]
    reuse = ["--reuse", "fedavg.jsonl.gz", "--reuse", "local.jsonl.gz"]
    runs = json.loads(call(capsys, *flags, *reuse, "-o", "new")[1])["runs"]
    assert [run["state"] for run in runs] == ["done", "done", "left"] * 2
    assert not Path("new").exists()
    flags = ["compare", "--method", "local", "--seed", "0-1", *FLAGS, "-o", "new", *reuse, "-q"]
    assert call(capsys, *flags)[0] == 0
    assert not list(Path("new/cells").iterdir())
    assert Path("new/tables.md").read_text() == Path("local/tables.md").read_text()


@pytest.mark.parametrize(("after", "address"), [([], None), (["auto"], "auto"), (["h:1"], "h:1")])
def test_ray_takes_an_address_or_none(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    after: list[str],
    address: str | None,
) -> None:
    """A file of settings that follows `--ray` is not its address."""
    made = []
    monkeypatch.setattr(experiments, "RayEngine", made.append, raising=False)
    Path("grid.toml").write_text('[axes]\nseeds = "0-1"\n')
    assert call(capsys, "compare", "--dry-run", "--ray", *after, "grid.toml")[0] == 0
    assert made == [address]
