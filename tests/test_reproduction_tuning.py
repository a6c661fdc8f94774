"""Choosing the main options of other methods on held-out training samples, and the record of the choices."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from fedcap import Experiment
from fedcap.experiments.grid import Grid
from reproduction import tuning
from reproduction.__main__ import main
from reproduction.tuning import Choice, read_choices, record, table

REPOSITORY = Path(__file__).parents[1]


def choice(method: str, chosen: float | None, default: float | None) -> Choice:
    trials = [
        {"options": {"threshold": None}, "scores": [90.0, 91.0]},
        {"options": {"threshold": 1.0}, "scores": [92.0, 93.0]},
        {"options": {"threshold": 3.0}, "scores": []},
    ]
    return Choice("digits", method, 30, [0, 1], 0.2, {"threshold": chosen}, {"threshold": default}, trials)


def test_the_value_with_the_highest_held_out_accuracy_is_chosen_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spaces = {
        "ditto": ("ditto", "mean", {"lambda_": (0.1, 2.0)}),
        "clipped": ("fedavg", "norm-clipping", {"threshold": (None, 0.001)}),
    }
    monkeypatch.setattr(tuning, "ROUNDS", 1)
    monkeypatch.setattr("reproduction.__main__.SPACES", spaces)
    monkeypatch.setattr(tuning, "SPACES", spaces)
    place = ["--results", str(tmp_path), "--out", str(tmp_path / "runs"), "--workers", "1", "--seeds", "3"]
    assert main(["tune", *place]) == 0
    choices = {each.method: each for each in read_choices(tmp_path)}
    for each in choices.values():
        best = max(each.trials, key=lambda trial: fmean(trial["scores"]))
        assert each.chosen == best["options"]
    assert choices["ditto"].default == {"lambda_": 1.0}
    assert choices["clipped"].default == {"threshold": None}
    assert choices["clipped"].is_default  # a model that hardly moves has learnt nothing
    held_out = Experiment(method="ditto(lambda_=2)", rounds=1, seed=3, holdout=0.2).run().tacc
    assert choices["ditto"].trials[1] == {"options": {"lambda_": 2.0}, "scores": [held_out]}
    assert "held-out accuracy" in capsys.readouterr().out


def test_a_choice_replaces_that_of_the_same_method_and_data_set(tmp_path: Path) -> None:
    for each in (choice("a", None, None), choice("b", 1.0, None), choice("a", 1.0, None)):
        record(each, tmp_path)
    assert read_choices(tmp_path) == [choice("a", 1.0, None), choice("b", 1.0, None)]
    assert read_choices(tmp_path / "absent") == []


def test_the_table_has_the_values_tried_the_default_and_the_choice() -> None:
    rows = table([choice("fedavg+norm-clipping", 1.0, None), choice("other", None, None)]).cells()
    tried = "median: 90.5; 1: 92.5; 3: –"
    assert rows[0] == ["digits", "fedavg+norm-clipping", "threshold", tried, "median: 90.5", "1: 92.5"]
    assert rows[1][-1] == "the default"


def test_the_grid_of_every_method_has_the_tuned_options() -> None:
    for name, dataset in (("headline", "digits"), ("headline-handwritten62", "handwritten62")):
        choices = [each for each in read_choices(REPOSITORY / "results") if each.dataset == dataset]
        cells = Grid.read(REPOSITORY / "examples" / f"{name}.toml", {}, {"seed": 0}).cells()
        methods = {cell.place["method"]: json.dumps(cell.experiment.settings()["method"]) for cell in cells}
        for each in choices:
            if each.method not in methods or each.method == "fedcap":
                continue
            tuned = f"{each.method}, tuned"
            assert (tuned in methods) is not each.is_default, f"add or remove {tuned!r} in {name}.toml"
            if not each.is_default:
                for option, value in each.chosen.items():
                    assert f'"{option}": {json.dumps(value)}' in methods[tuned]
