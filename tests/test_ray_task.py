"""A cell on a node of a Ray cluster, and the errors without Ray or without the cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import Killed, Killer, call, refused, without_times
from run_tools import SMALL, assert_same

import fedcap
from fedcap.experiments import RayEngine
from fedcap.experiments.grid import Cell
from fedcap.experiments.ray import FILES, Board, task, write_run
from fedcap.experiments.store import CellStore
from fedcap.runs import CHECKPOINT, RunDirectory
from fedcap.runs.outcome import OUTCOME, CellFailure
from fedcap.simulation import make_pool
from fedcap.simulation.store import STATES
from fedcap.training.workers.base import carried


class BesideMe:
    """The board as tasks see it, without Ray: calls are made at once."""

    def __init__(self) -> None:
        self.board = Board()
        self.leave = self

    def remote(self, *words: Any) -> None:
        self.board.leave(*words)


def cell_of(**settings: Any) -> Cell:
    experiment = fedcap.Experiment(**{**SMALL, **settings})
    place = {"dataset": "digits", "method": "fedcap", "rule": "", "attack": "min-max", "seed": "0"}
    return Cell(place, experiment)


def played(cell: Cell, board: BesideMe | None = None, name: str | None = None, keep: bool = False) -> Any:
    return task(carried(cell), name or cell.name, [], keep, board or BesideMe())


def test_a_task_hands_back_a_whole_run_and_tells_of_its_rounds(tmp_path: Path) -> None:
    cell, board, store = cell_of(), BesideMe(), CellStore(tmp_path / "store")
    files = played(cell, board, keep=True)
    assert set(files) | {STATES} == {*FILES, OUTCOME}
    with RunDirectory(store.directory(cell)) as directory:
        write_run(directory, files)
    cell.experiment.run(tmp_path / "here")
    assert_same(store.directory(cell), tmp_path / "here")
    told = [(name, event, facts[:1]) for name, event, facts in board.board.take()]
    rounds = [(cell.name, "progressed", (number,)) for number in (1, 2, 3)]
    assert told == [(cell.name, "started", ()), *rounds]
    assert board.board.take() == []


def test_models_travel_only_if_they_are_to_be_kept() -> None:
    assert CHECKPOINT not in played(cell_of())


def test_what_a_run_had_begun_gives_way_to_the_whole_run(tmp_path: Path) -> None:
    cell, store = cell_of(), CellStore(tmp_path / "store")
    with pytest.raises(Killed):
        cell.experiment.run(store.directory(cell), observers=[Killer(2)])
    files = played(cell)
    with RunDirectory(store.directory(cell)) as directory:
        write_run(directory, files)
    assert store.save(cell).tacc == cell.experiment.run().tacc


@pytest.mark.parametrize("written", range(len(FILES)))
def test_a_run_that_was_returned_in_part_is_played_again(tmp_path: Path, written: int) -> None:
    cell = cell_of()
    files = played(cell)
    with RunDirectory(tmp_path / "run") as directory:
        write_run(directory, {name: files[name] for name in FILES[:written] if name in files})
    assert without_times(cell.experiment.run(tmp_path / "run")) == without_times(cell.experiment.run())


def test_a_node_with_other_data_plays_nothing() -> None:
    cell = cell_of()
    found = played(cell, name="0" * 16)
    assert isinstance(found, CellFailure)
    assert "its node has other data" in found.why


def test_a_cell_that_a_node_cannot_load_or_play_fails_with_a_line() -> None:
    found = task(b"no cell", "name", [], False, BesideMe())
    assert isinstance(found, CellFailure)
    assert found.why.startswith("its node cannot play it (")
    broken = played(cell_of(method="cluster_tools:Broken"))
    assert isinstance(broken, CellFailure)
    assert broken.why == "ArithmeticError: the server broke down"
    assert "in update" in broken.where


def test_without_ray_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for ask in (RayEngine, lambda: make_pool(engine="ray")):
        with refused("needs-extra"):
            ask()
    code, _, error = call(capsys, "run", "--ray", "--out", tmp_path / "run")
    assert code == 2
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "somewhere"])
def test_an_unreachable_cluster_is_an_error_at_once(address: str) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: make test-extras runs this")
    with refused("no-cluster"):
        make_pool(engine="ray", address=address)


def test_an_address_is_for_ray_alone() -> None:
    with refused("bad-value"):
        make_pool(address="127.0.0.1:6379")
    with refused("unknown-name"):
        make_pool(engine="dask")  # type: ignore[arg-type]
    with refused("bad-value"):
        make_pool(engine="ray", device="cuda")
