"""Cells on disk: what finished, begun and failed ones leave, and what a second grid makes of it."""

from __future__ import annotations

import errno
import json
import os
import pickle
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from grid_tools import TINY, TROUBLE, Notes, without_times
from helpers import call, refused

from fedcap.detection.robust_norm import RobustNorm
from fedcap.errors import RunError
from fedcap.experiments.engine import play
from fedcap.experiments.grid import Cell, Grid
from fedcap.experiments.store import CellStore, GridStatus, prepare, save_outcomes
from fedcap.methods import hardened
from fedcap.report.panel import derive_places
from fedcap.runs import Outcome, RunDirectory, Settings, directory
from fedcap.runs.outcome import cpu_model, read_planned
from fedcap.simulation import COMPUTES

PLAIN = {key: value for key, value in TINY.items() if key != "malicious"}


@pytest.fixture
def cell() -> Cell:
    return Grid(methods="fedcap", attack="ipm", **TINY).cells()[0]


@pytest.fixture
def store(tmp_path: Path) -> CellStore:
    found = CellStore(tmp_path / "grid", results=tmp_path / "results")
    found.open()
    return found


def played(cell: Cell, store: CellStore) -> Outcome:
    """Play a cell and return its outcome from the store."""
    assert play(cell, store, Notes())
    outcome = store.outcome(cell)
    assert outcome is not None
    return outcome


def test_a_finished_cell_keeps_all_but_its_models(
    cell: Cell, store: CellStore, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = Notes()
    assert store.outcome(cell) is None
    assert play(cell, store, notes)
    assert notes.of(cell) == ["started", "round 1", "round 2", "finished"]
    run = store.directory(cell)
    left = {path.name for path in run.iterdir() if not path.name.startswith(".")}
    records = {"config.toml", "provenance.json", "rounds.jsonl", "mixing.bin", "result.json"}
    assert left == records | {"outcome.json"}
    assert store.results is not None
    assert (store.results / f"{cell.name}.json").exists()
    assert "fedcap · ipm" in call(capsys, "show", run)[1]
    code, _, err = call(capsys, "export", run, "--client", "0", "-o", store.root / "model.pt2")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "checkpoint.safetensors is missing, and the models with it" in err


def test_outcomes_are_found_by_name_and_by_key(cell: Cell, store: CellStore, tmp_path: Path) -> None:
    outcome = played(cell, store)
    assert store.outcomes() == {cell.key: outcome}
    outcome = replace(outcome, places=[])  # a published outcome has no place in a grid
    published = CellStore(tmp_path / "elsewhere", results=store.results)
    assert published.outcome(cell) == outcome
    assert published.outcomes() == {cell.key: outcome}


def test_a_packed_grid_counts_as_done(cell: Cell, store: CellStore, tmp_path: Path) -> None:
    outcome = played(cell, store)
    save_outcomes([(cell.place, outcome)], tmp_path / "grid.jsonl")
    (tmp_path / "packed").mkdir()
    save_outcomes([(cell.place, outcome)], tmp_path / "packed" / "grid.jsonl.gz")
    for reuse in (tmp_path / "grid.jsonl", tmp_path / "packed", tmp_path, store.root):
        elsewhere = pickle.loads(pickle.dumps(CellStore(tmp_path / "elsewhere", reuse=reuse)))
        found = elsewhere.outcome(cell)
        assert found is not None
        assert (found.tacc, found.clients, found.digest) == (outcome.tacc, outcome.clients, outcome.digest)
    other = Grid(methods="fedcap", attack="ipm", seeds=1, **TINY).cells()[0]
    assert CellStore(tmp_path / "elsewhere", reuse=tmp_path).outcome(other) is None


def test_what_was_published_before_there_was_an_option_is_the_same_run(cell: Cell, store: CellStore) -> None:
    outcome = played(cell, store)
    assert store.results is not None
    (store.results / f"{cell.name}.json").unlink()
    settings = json.loads(json.dumps(outcome.settings))
    del settings["method"]["preset"]
    older = replace(outcome, settings=settings, digest=cell.experiment.digest(settings))
    assert older.digest != outcome.digest
    (store.results / f"{older.digest[:16]}.json").write_text(older.to_json())
    assert CellStore(store.root / "elsewhere", store.results).outcome(cell) == older
    on_other_data = replace(older, digest="f" * 64)
    (store.results / f"{older.digest[:16]}.json").write_text(on_other_data.to_json())
    assert CellStore(store.root / "elsewhere", store.results).outcome(cell) is None


@pytest.mark.parametrize(("part", "name"), [(RobustNorm, "revision"), (hardened, "REVISION")])
def test_what_another_revision_of_a_part_came_to_does_not_count(
    part: Any, name: str, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planned() -> Cell:
        return Grid(methods="fedcap(preset=hardened)", **TINY).cells()[0]

    play(planned(), store, Notes())
    published = CellStore(store.root / "elsewhere", store.results)
    assert published.outcome(planned()) is not None
    monkeypatch.setattr(part, name, getattr(part, name) + 1)
    assert published.outcome(planned()) is None


def test_outcomes_of_an_older_version_are_not_those_of_now(cell: Cell, store: CellStore) -> None:
    outcome = played(cell, store)
    assert store.results is not None
    older = replace(outcome, digest="f" * 64, provenance={**outcome.provenance, "computes": COMPUTES - 1})
    (store.results / f"{'f' * 16}.json").write_text(older.to_json())
    published = CellStore(store.root / "elsewhere", results=store.results)
    assert published.outcomes() == {cell.key: replace(outcome, places=[])}


def test_a_run_that_finished_without_an_outcome_counts(cell: Cell, store: CellStore) -> None:
    result = cell.experiment.run(out=store.directory(cell))
    found = store.outcome(cell)
    assert found is not None
    assert found.tacc == result.tacc


def test_an_outcome_under_another_cells_name_does_not_count(cell: Cell, store: CellStore) -> None:
    play(cell, store, Notes())
    other = Grid(methods="fedavg", **TINY).cells()[0]
    store.directory(cell).rename(store.directory(other))
    assert store.outcome(other) is None


def test_a_damaged_outcome_is_made_again_from_the_run(cell: Cell, store: CellStore) -> None:
    before = played(cell, store)
    (store.directory(cell) / "outcome.json").write_bytes(b"{\xff")
    assert store.outcome(cell) == replace(before, evidence=None, places=[])


def test_a_cell_that_was_begun_goes_on_to_the_same_outcome(
    cell: Cell, store: CellStore, tmp_path: Path
) -> None:
    class Stop(Notes):
        def progressed(self, cell: Cell, round: int, accuracy: float | None) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(cell, store, Stop())
    assert store.outcome(cell) is None
    assert store.failure(cell) is None
    notes, whole = Notes(), CellStore(tmp_path / "whole")
    whole.open()
    play(cell, store, notes)
    assert notes.of(cell) == ["started", "round 2", "finished"]
    resumed = store.outcome(cell)
    assert resumed is not None
    assert without_times(resumed) == without_times(played(cell, whole))


def test_a_cell_that_another_process_plays_is_left_to_it(cell: Cell, store: CellStore) -> None:
    with RunDirectory(store.directory(cell)):
        notes = Notes()
        assert not play(cell, store, notes)
    assert notes.told == []
    assert store.failure(cell) is None


def test_a_cell_that_fails_is_recorded_and_tried_again_on_request(
    store: CellStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trouble_kept.py").write_text(TROUBLE)
    monkeypatch.syspath_prepend(tmp_path)
    cells = Grid(attacks="trouble_kept:Breaks", methods="fedavg", **TINY).cells()
    notes = Notes()
    assert play(cells[0], store, notes)
    assert notes.of(cells[0]) == ["started", "failed"]
    failure = store.failure(cells[0])
    assert failure is not None
    assert failure.why == "ZeroDivisionError: no luck" == notes.why[str(cells[0])]
    assert failure.where.rstrip().endswith(failure.why)
    assert (
        json.loads((store.root / "failed" / f"{cells[0].name}.json").read_text())["place"] == cells[0].place
    )
    assert prepare(cells, store).left == []
    assert prepare(cells, store, retry=True).left == cells
    assert store.failure(cells[0]) is None


def test_a_run_that_was_damaged_is_played_again_on_request(cell: Cell, store: CellStore) -> None:
    store.results = None
    whole = played(cell, store)
    run = store.directory(cell)
    (run / "outcome.json").unlink()
    (run / "rounds.jsonl").write_text("nonsense\n")
    assert GridStatus.of([cell], store).left == [cell]
    notes = Notes()
    play(cell, store, notes)
    assert "rounds.jsonl, line 1, cannot be read" in notes.why[str(cell)]
    assert prepare([cell], store, retry=True).left == [cell]
    assert (store.root / "failed" / cell.name / "rounds.jsonl").exists()
    again = played(cell, store)
    assert whole is not None
    assert without_times(again) == without_times(whole)


def test_a_full_disk_ends_the_grid_and_blames_no_cell(
    cell: Cell, store: CellStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(directory, "write_aside", full)
    with pytest.raises(RunError) as error:
        play(cell, store, Notes())
    assert (
        str(error.value) == f"cannot write to {store.root}: No space left on device; finished runs stay there"
    )
    assert store.failure(cell) is None


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with refused("cannot-write", str(file)):
        CellStore(file).open()


def test_the_place_of_each_cell_is_stored_with_the_plan_and_with_its_outcome(tmp_path: Path) -> None:
    cells = Grid(methods="fedavg", attacks="none,ipm", axes={"malicious": [0.25, 0.4]}, **PLAIN).cells()
    store = CellStore(tmp_path)
    status = prepare(cells, store)
    assert [len(cells), len(status.left)] == [4, 3]  # without an attack, the share makes no difference
    planned = read_planned(tmp_path)
    assert [place for places in planned.values() for place in places] == [cell.place for cell in cells]
    outcome = played(cells[0], store)
    assert outcome.places == [cells[0].place, cells[1].place]
    assert outcome.digest == cells[0].experiment.digest()
    assert len(read_planned(tmp_path)) == 3


def test_a_reused_outcome_is_not_planned_in_the_folder(cell: Cell, store: CellStore, tmp_path: Path) -> None:
    outcome = played(cell, store)
    save_outcomes([(cell.place, outcome)], tmp_path / "saved.jsonl.gz")
    elsewhere = CellStore(tmp_path / "elsewhere", reuse=tmp_path / "saved.jsonl.gz")
    assert prepare([cell], elsewhere).left == []
    assert read_planned(elsewhere.root) == {}


def test_the_plan_of_an_older_version_has_names_alone(tmp_path: Path) -> None:
    (tmp_path / "planned.json").write_text('["0123", "4567"]')
    assert read_planned(tmp_path) == {"0123": [], "4567": []}
    (tmp_path / "planned.json").write_text('{"no": "list"}')
    assert read_planned(tmp_path) == {}
    assert read_planned(tmp_path / "nowhere") == {}


def test_places_of_old_folders_are_those_of_the_grid() -> None:
    axes = {"method.alpha": [1.0, 5.0], "malicious": [0.25, 0.4], "attack.epsilon": [2.0, 20.0]}
    cells = Grid(methods=["fedcap", "fedavg"], attacks=["none", "ipm"], axes=axes, **PLAIN).cells()
    runs = {cell.key: Settings.model_validate(cell.experiment.settings()) for cell in cells}
    derived = dict(zip(runs, derive_places(list(runs.values())), strict=True))
    for key in runs:
        expected = [
            {axis: label for axis, label in cell.place.items() if label or axis == "rule"}
            for cell in cells
            if cell.key == key
        ]
        distinct = {tuple(sorted(place.items())) for place in expected}
        assert {tuple(sorted(place.items())) for place in derived[key]} == distinct


def test_evidence_is_recorded_and_enters_no_digest(cell: Cell, store: CellStore, tmp_path: Path) -> None:
    outcome = played(cell, store)
    assert outcome.evidence is not None
    assert (outcome.evidence.cpu, outcome.evidence.workers) == (cpu_model(), 1)
    assert datetime.fromisoformat(outcome.evidence.date).tzinfo is not None
    again = CellStore(tmp_path / "again", keep_models=True)
    again.open()
    other = played(cell, again)
    seed = played(Grid(methods="fedcap", attack="ipm", seeds=1, **TINY).cells()[0], again)
    assert other.evidence is not None
    assert seed.evidence is not None
    assert other.digest == outcome.digest
    assert other.evidence.weights_hash == outcome.evidence.weights_hash != seed.evidence.weights_hash
