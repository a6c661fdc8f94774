"""Recorded runs are played again: equal weights on one processor, near accuracy on another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from grid_tools import TINY, Here, Notes

from fedcap.experiments.grid import Grid
from fedcap.experiments.store import CellStore, prepare, save_outcomes
from fedcap.runs import Evidence, Outcome
from reproduction.__main__ import main
from reproduction.replay import TOLERANCE, Replayed, choose, replay

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three small runs on digits, recorded: two as single files, one in the file of a grid."""
    folder = tmp_path_factory.mktemp("recorded")
    cells = Grid(methods="fedavg,fedcap,ditto", attacks="ipm", **TINY).cells()
    store = CellStore(folder / "grid")
    Here().run(prepare(cells, store).left, store, Notes())
    (folder / "results").mkdir()
    found = [(cell, store.outcome(cell)) for cell in cells]
    for cell, outcome in found[:2]:
        assert outcome is not None
        (folder / "results" / f"{cell.name}.json").write_text(replace(outcome, places=[]).to_json())
    assert found[2][1] is not None
    save_outcomes([(found[2][0].place, found[2][1])], folder / "results" / "grid.jsonl.gz")
    return folder / "results"


def test_recorded_runs_have_the_same_weights_again(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = choose([results])
    found = replay(chosen, tmp_path, Here(), Notes())
    assert len(found) == 3
    assert all(each.compares_weights and each.agrees for each in found)
    assert {str(each).partition(":")[2] for each in found} == {" the same weights"}
    assert len(choose([results], sample=2)) == 2
    assert main(["replay", "--results", str(results), "--sample", "1", "--workers", "1"]) == 0
    assert "1 of 1 run agree, 1 of them in all weights" in capsys.readouterr().out


def test_other_weights_or_another_accuracy_are_found(results: Path) -> None:
    (cell, recorded), *_ = choose([results])
    assert recorded.evidence is not None

    def verdict(again: Outcome, before: Outcome = recorded) -> bool:
        return Replayed(cell, before, again).agrees

    other = replace(recorded.evidence, weights_hash="0" * 64)
    assert verdict(recorded)
    assert not verdict(replace(recorded, evidence=other))
    elsewhere = replace(recorded, evidence=Evidence("another processor", 1, "2026-01-01", "0" * 64))
    assert verdict(elsewhere)
    assert verdict(replace(recorded, evidence=other, provenance={**recorded.provenance, "products": "other"}))
    assert verdict(replace(recorded, evidence=None, tacc=recorded.tacc + TOLERANCE))
    assert not verdict(replace(recorded, evidence=None, tacc=recorded.tacc + TOLERANCE + 0.1))
    assert not verdict(replace(elsewhere, diverged=not recorded.diverged))
    assert not Replayed(cell, recorded, None, "no luck").agrees


@pytest.mark.slow
@pytest.mark.usefixtures("data_folder")  # without files: only runs on digits can be played
def test_ten_published_runs_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDCAP_PRODUCTS", "mkl")  # as the published runs
    asked = ["replay", "--results", str(REPOSITORY / "results"), "--sample", "10", "--out", str(tmp_path)]
    assert main(asked) == 0
    assert "10 of 10 runs agree" in capsys.readouterr().out


def test_runs_of_other_code_or_data_are_left_out(results: Path, tmp_path: Path) -> None:
    path = next(results.glob("*.json"))
    content = json.loads(path.read_text())
    (tmp_path / "other.json").write_text(json.dumps({**content, "digest": "f" * 64}))
    unknown = {**content["settings"], "attack": {"name": "of_the_user:Attack"}}
    (tmp_path / "code.json").write_text(json.dumps({**content, "digest": "e" * 64, "settings": unknown}))
    assert choose([tmp_path]) == []
    assert main(["replay", "--results", str(tmp_path)]) == 2
