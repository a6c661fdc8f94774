"""The engine for one machine: the same bits as in this process, whoever dies, fails, or plays beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from grid_tools import FLAGS, TINY, TROUBLE, Here, Notes, without_times
from helpers import refused
from python_tools import Louder, here

from fedcap.experiments.grid import Grid
from fedcap.experiments.local import LocalEngine
from fedcap.experiments.store import CellStore, GridStatus
from fedcap.runs import RunDirectory

AXES = ["--method", "fedavg,fedcap", "--attack", "none,min-max", "--seed", "0-1", *FLAGS]


def opened(path: Path) -> CellStore:
    store = CellStore(path)
    store.open()
    return store


@pytest.fixture
def trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trouble.py").write_text(TROUBLE)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("trouble")
def test_cells_fail_and_finish_side_by_side_with_the_bits_of_one_process(tmp_path: Path) -> None:
    cells = Grid(attacks="none,trouble:Breaks,ipm", methods="fedcap", **TINY).cells()
    store, alone, notes = opened(tmp_path / "many"), opened(tmp_path / "alone"), Notes()
    LocalEngine(2).run([*cells, cells[0]], store, notes)
    good = [cells[0], cells[2]]
    Here().run(good, alone, Notes())
    for cell in good:
        one, other = store.outcome(cell), alone.outcome(cell)
        assert one is not None
        assert other is not None
        assert without_times(one) == without_times(other)
        assert notes.of(cell) == ["started", "round 1", "round 2", "finished"]
    assert notes.of(cells[1]) == ["started", "failed"]
    assert notes.why == {str(cells[1]): "ZeroDivisionError: no luck"}


@pytest.mark.slow
@pytest.mark.usefixtures("trouble")
def test_a_cell_that_its_workers_die_of_is_tried_twice_and_the_others_finish(tmp_path: Path) -> None:
    cells = Grid(attacks="trouble:Dies,none", methods="fedavg", **TINY).cells()
    store, notes = opened(tmp_path / "many"), Notes()
    LocalEngine(1).run(cells, store, notes)
    assert notes.of(cells[0]) == ["started", "started", "failed"]
    assert notes.of(cells[1])[-1] == "finished"
    died = "2 worker processes died of it, the last with exit code -9 (killed: was memory short?)"
    assert notes.why == {str(cells[0]): died}
    assert set(GridStatus.of(cells, store).failed) == {cells[0].name}


def test_what_no_worker_can_import_is_played_in_this_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cells = Grid(attacks=[here(Louder)()], methods="fedavg", **TINY).cells()
    store, notes = opened(tmp_path), Notes()
    LocalEngine(2).run(cells, store, notes)
    assert notes.of(cells[0])[-1] == "finished"
    assert "Louder is defined in __main__, where worker processes cannot find it" in caplog.text
    assert "put what it needs into a module" in caplog.text


def test_what_another_grid_has_settled_is_not_played_again(tmp_path: Path) -> None:
    cells = Grid(methods="fedavg", seeds="0-1", **TINY).cells()
    store, notes = opened(tmp_path), Notes()
    Here().run(cells[:1], store, Notes())
    store.fail(cells[1], "for a reason")
    LocalEngine(2).run(cells, store, notes)
    assert notes.told == [("finished", str(cells[0])), ("failed", str(cells[1]))]
    assert notes.why == {str(cells[1]): "for a reason"}


def test_a_number_of_workers_is_positive() -> None:
    assert LocalEngine(workers=3).workers == 3
    with refused("bad-value", "workers"):
        LocalEngine(workers=0)


def start(out: Path, *flags: str) -> subprocess.Popen[str]:
    # A shell may have told us to ignore Ctrl-C.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{listen}; from fedcap.__main__ import main; main()"
    command = [sys.executable, "-c", program, "compare", *AXES, "--out", str(out), *flags]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def begun(out: Path) -> None:
    """Wait until a run has a round."""
    while not any(path.read_text() for path in out.glob("cells/*/rounds.jsonl")):
        time.sleep(0.02)


def workers(process: subprocess.Popen[str]) -> list[int]:
    """Return the processes that a grid has started, once there are any."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not children.read_text().split():
        time.sleep(0.02)
    return [int(child) for child in children.read_text().split()]


@pytest.mark.slow
def test_killed_grids_and_grids_side_by_side_end_with_the_same_tables(tmp_path: Path) -> None:
    out, whole = tmp_path / "killed", tmp_path / "whole"
    settings = dict(methods="fedavg,fedcap", attacks="none,min-max", seeds="0-1", **TINY)
    Grid(**settings).run(whole, Here())
    killed = start(out, "--workers", "1")
    begun(out)
    killed.kill()
    killed.communicate()
    process, beside = start(out, "--workers", "1"), start(out, "--workers", "1", "--json")
    os.kill(workers(process)[0], signal.SIGKILL)
    printed = json.loads(beside.communicate()[0])
    process.communicate()
    assert (process.returncode, beside.returncode) == (0, 0)
    assert (printed["runs"], printed["done"], printed["failed"]) == (8, 8, [])
    assert (out / "tables.md").read_text() == (whole / "tables.md").read_text()
    played = [path.read_text().count("\n") for path in out.glob("cells/*/rounds.jsonl")]
    assert played == [2] * 8


@pytest.mark.slow
def test_ctrl_c_ends_a_grid_in_one_line_and_leaves_no_process(tmp_path: Path) -> None:
    out = tmp_path / "grid"
    process = start(out, "--rounds", "500")
    begun(out)
    playing = workers(process)
    os.killpg(process.pid, signal.SIGINT)
    printed, said = process.communicate()
    assert (process.returncode, printed) == (130, "")
    assert said.splitlines()[-1] == (
        f"fedcap: interrupted: 0 of 8 runs are done and kept in {out}; the same command continues"
    )
    assert not any(Path(f"/proc/{worker}").exists() for worker in playing)


@pytest.mark.slow
def test_a_cell_that_is_played_elsewhere_is_waited_for(tmp_path: Path) -> None:
    cells = Grid(methods="fedavg", seeds="0-1", **TINY).cells()
    store = opened(tmp_path)
    elsewhere = RunDirectory(store.directory(cells[0]))

    class Release(Notes):
        def finished(self, cell: object, outcome: object) -> None:
            elsewhere.__exit__()
            super().finished(cell, outcome)  # type: ignore[arg-type]

    notes = Release()
    with elsewhere:
        LocalEngine(1).run(cells, store, notes)
    assert [line for line in notes.told if line[0] == "finished"] == [
        ("finished", str(cells[1])),
        ("finished", str(cells[0])),
    ]
