"""The learning rate for one's own data is chosen, and a run that was too short says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedcap
from fedcap.runs import Accuracy, read_toml, still_rising
from fedcap.simulation import load_experiment, rate
from fedcap.simulation.rate import RATES

pytestmark = pytest.mark.usefixtures("data_folder")

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(240, 4)).astype(np.float32)
Y = (X[:, 0] + X[:, 1] > 0).astype(int)
DATA: dict[str, Any] = {"x": X, "y": Y, "clients": 4}
QUICK: dict[str, Any] = {"rounds": 2, "workers": 1, "training": {"epochs": 1}}


@pytest.fixture(autouse=True)
def _no_earlier_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "_CHOSEN", {})


def test_experiments_that_differ_in_the_attack_share_one_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = fedcap.Experiment(dataset=DATA, **QUICK).chosen_training
    monkeypatch.delattr(rate, "_compare")
    assert fedcap.Experiment(dataset=DATA, attack="ipm", **QUICK).chosen_training == chosen
    for other in ({"seed": 1}, {"method": "fedavg"}, {"dataset": DATA | {"x": X + 1}}):
        with pytest.raises(NameError, match="_compare"):
            _ = fedcap.Experiment(**{"dataset": DATA, **QUICK, **other}).chosen_training


def test_the_chosen_rate_is_in_the_settings_and_in_the_directory(tmp_path: Path) -> None:
    experiment = fedcap.Experiment(dataset=DATA, **QUICK)
    chosen = experiment.settings()["training"]["lr"]
    assert chosen in RATES
    assert experiment.chosen_training.lr == chosen
    experiment.run(out=tmp_path / "run")
    assert read_toml(tmp_path / "run" / "config.toml")["training"]["lr"] == chosen
    again = fedcap.Experiment(dataset=DATA, **QUICK)
    assert again.settings() == experiment.settings()
    assert again.digest() == experiment.digest()


def test_a_run_at_the_chosen_rate_is_the_run_at_that_rate() -> None:
    chosen = fedcap.Experiment(dataset=DATA, **QUICK)
    given = QUICK | {"training": {"epochs": 1, "lr": chosen.chosen_training.lr}}
    result, expected = chosen.run(), fedcap.Experiment(dataset=DATA, **given).run()
    assert [record.scores for record in result.history] == [record.scores for record in expected.history]
    assert result.tacc == expected.tacc


def test_neither_the_attack_nor_the_test_samples_decide() -> None:
    tests = np.arange(240) % 4 == 0
    owners = np.arange(240) % 3
    data = {"x": X, "y": Y, "client": owners, "test": tests}
    plain = fedcap.Experiment(dataset=data, **QUICK).chosen_training
    attacked = fedcap.Experiment(dataset=data, attack="ipm", malicious=0.4, **QUICK)
    rate._CHOSEN.clear()
    assert attacked.chosen_training == plain
    wrong = fedcap.Experiment(dataset=data | {"y": np.where(tests, 1 - Y, Y)}, **QUICK)
    assert wrong.chosen_training == plain


@pytest.mark.parametrize(
    ("losses", "removed", "chosen"),
    [
        ([2.0, 1.0, 0.5, 0.2, 0.3], [0, 0, 0, 0, 0], 0.1),
        ([0.5, 0.5, 0.5, 0.5, 0.5], [0, 0, 0, 0, 0], 0.003),
        ([2.0, 1.0, 0.5, 0.2, 0.1], [0, 0, 0, 1, 2], 0.03),
        ([2.0, 1.0, 0.5, 0.2, 0.1], [4, 4, 4, 4, 4], 0.3),
        ([2.0, 1.0, 0.5, np.inf, np.inf], [0, 0, 0, 0, 0], 0.03),
    ],
)
def test_of_the_rates_that_remove_the_fewest_clients_the_lowest_loss_wins(
    monkeypatch: pytest.MonkeyPatch, losses: list[float], removed: list[int], chosen: float
) -> None:
    trials = {
        lr: rate.Trial(lr, *found) for lr, found in zip(RATES, zip(losses, removed, strict=True), strict=True)
    }
    monkeypatch.setattr(rate, "_play", lambda setup, data, lr: trials[lr])
    assert fedcap.Experiment(dataset=DATA, **QUICK).chosen_training.lr == chosen


def test_a_rate_with_which_training_diverges_is_not_chosen() -> None:
    class Steep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x).pow(3)

    data = DATA | {"x": X * 30}
    experiment = fedcap.Experiment(dataset=data, model=Steep(), method="fedavg", **QUICK)
    trials = {lr: rate._play(experiment, experiment.load_data(), lr) for lr in RATES}
    assert trials[0.3].loss == np.inf
    assert experiment.chosen_training.lr < 0.3


@pytest.mark.parametrize(
    "settings",
    [
        {"dataset": "digits"},
        {"dataset": DATA, "training": {"lr": 0.02}},
        {"dataset": DATA | {"like": "digits"}},
    ],
)
def test_a_given_rate_and_the_rates_of_other_data_sets_are_not_compared(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(rate, "choose_rate")
    lr = fedcap.Experiment(**settings).settings()["training"]["lr"]
    assert lr == settings.get("training", {}).get("lr", 0.1 if "digits" in str(settings) else None)


def test_clients_with_too_few_samples_get_the_usual_rate(caplog: pytest.LogCaptureFixture) -> None:
    data = {"x": X[:40], "y": Y[:40], "clients": 10}
    assert fedcap.Experiment(dataset=data, **QUICK).chosen_training.lr == 0.01
    assert "training.lr is 0.01: clients have too few samples" in caplog.text


def test_a_resumed_run_does_not_choose_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "mine.npz", x=X, y=Y)
    dataset = {"name": str(tmp_path / "mine.npz"), "clients": 4}
    fedcap.Experiment(dataset=dataset, **QUICK).run(out=tmp_path / "run")
    monkeypatch.delattr(rate, "choose_rate")
    resumed = load_experiment(tmp_path / "run", rounds=3)
    assert resumed.run(out=tmp_path / "run", extend=True).rounds == 3


def history(*accuracies: float) -> list[Any]:
    """Return the records of rounds with these accuracies."""
    result = fedcap.Experiment(rounds=1, workers=1, dataset={"name": "digits", "samples": 20}).run()
    (record,) = result.history
    return [
        replace(record, round=number, accuracy=Accuracy(value, value, {}))
        for number, value in enumerate(accuracies, 1)
    ]


def test_a_run_whose_accuracy_still_rises_says_so_and_names_two_remedies() -> None:
    said = still_rising(history(10, 20, 30, 40, 50, 60, 70, 80, 82, 84))
    assert said is not None
    assert said.startswith("accuracy rose by 4.0 points in the last 2 rounds")
    assert "play more rounds" in said
    assert "training.lr" in said


@pytest.mark.parametrize("accuracies", [[50] * 10, [50] * 8 + [50.5, 51], [90] * 8 + [80, 70], [10, 50, 90]])
def test_a_run_that_is_flat_falling_or_too_short_to_judge_says_nothing(accuracies: list[float]) -> None:
    assert still_rising(history(*accuracies)) is None
