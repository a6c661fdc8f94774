"""Honest clients removed in numbers: a run without clients stops with a reason, half is a warning."""

from __future__ import annotations

import json
import logging
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Killed, Killer, call, without_times
from sklearn.datasets import load_breast_cancer

import fedcap
from fedcap.runs import read

DATA = load_breast_cancer()
UNSCALED: dict[str, Any] = {
    "dataset": (DATA.data, DATA.target),
    "rounds": 6,
    "training": {"lr": 0.01},
    "workers": 1,
}
FEW: dict[str, Any] = {"rounds": 3, "training": {"epochs": 1}, "workers": 1}


def numbers_in(result: Any) -> list[float]:
    """Return the smallest, the median and the largest norm of the first round."""
    norms = [norm for norm in result.history[0].norms.values() if norm is not None]
    return [min(norms), statistics.median(norms), max(norms)]


def test_a_run_without_remaining_clients_stops_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fedcap"):
        result = fedcap.Experiment(**UNSCALED).run()
    assert result.rounds == len(result.history) == 1
    assert len(result.removed) == 20
    smallest, middle, largest = numbers_in(result)
    assert result.stopped is not None
    for part in (
        "all 20 clients were removed in round 1",
        f"smallest {smallest:.4g}, median {middle:.4g}, largest {largest:.4g}, limit 10",
        "dataset.standardise=true",
        "method.t_norm",
        "training.lr",
    ):
        assert part in result.stopped
    assert smallest > 10
    assert json.loads(result.to_json())["stopped"] == result.stopped
    (line,) = [record.message for record in caplog.records if "removed" in record.message]
    assert line.startswith("20 of 20 participants were removed at once in round 1")
    assert result.history[0].notes == [line]


@pytest.mark.parametrize(("every", "rounds"), [(1, 1), (2, 2), (5, 2)])
def test_the_last_round_of_such_a_run_is_evaluated(every: int, rounds: int) -> None:
    result = fedcap.Experiment(**UNSCALED, eval_every=every).run()
    assert result.rounds == rounds
    assert result.history[-1].accuracy is not None
    assert result.metrics is not None
    counts = result.history[-1].tallies.personal
    right = sum(counts.correct)
    assert 100 * right / sum(counts.actual) == pytest.approx(result.history[-1].accuracy.personal)
    assert [list(record.participants) for record in result.history[1:]] == [[]] * (rounds - 1)
    assert result.stopped is not None
    assert "in round 1 " in result.stopped


def test_such_a_run_is_resumed_and_stops_again(tmp_path: Path) -> None:
    settings = UNSCALED | {"eval_every": 3}
    whole = fedcap.Experiment(**settings).run(out=tmp_path / "whole")
    assert fedcap.Experiment(**settings).run(out=tmp_path / "whole").stopped == whole.stopped
    with pytest.raises(Killed):
        fedcap.Experiment(**settings).run(out=tmp_path / "half", observers=[Killer(after=1)])
    resumed = fedcap.Experiment(**settings).run(out=tmp_path / "half")
    assert without_times(resumed) == without_times(whole)
    again = read(tmp_path / "half").result
    assert again is not None
    assert again.stopped == whole.stopped


def test_the_reason_for_stopping_covers_removals_over_several_rounds() -> None:
    method = {"name": "fedavg", "detectors": {"name": "norm", "limit": 1e-9}}
    result = fedcap.Experiment(method=method, participation=0.5, **FEW).run()
    assert [len(record.removed) for record in result.history] == [10, 10]
    assert result.stopped is not None
    assert result.stopped.startswith("all 20 clients were removed by round 2 (norm: smallest ")


def test_the_command_prints_it_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "cancer.npz", tmp_path / "run"
    np.savez(file, x=DATA.data, y=DATA.target)
    run = ("run", "--dataset", str(file), "--rounds", "20", "--workers", "1", "--out", str(out))
    run += ("--set", "training.lr=0.01")
    code, printed, _ = call(capsys, *run)
    assert code == 1
    assert "  stopped    all 20 clients were removed in round 1 (norm: smallest" in printed
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 1
    stopped = json.loads((out / "result.json").read_text())["stopped"]
    assert stopped in printed
    code, printed, _ = call(capsys, *run, "--json")
    assert code == 1
    assert json.loads(printed)["stopped"] == stopped
    (out / "result.json").unlink()
    code, printed, _ = call(capsys, "run", "--resume", str(out), "--workers", "1")
    assert code == 1
    assert stopped in printed


def test_half_of_a_round_removed_at_once_is_one_warning_and_fewer_are_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run(limit: float) -> Any:
        method = {"name": "fedavg", "detectors": {"name": "norm", "limit": limit}}
        with caplog.at_level(logging.WARNING, "fedcap"):
            caplog.clear()
            return fedcap.Experiment(method=method, **FEW | {"rounds": 1}).run()

    norms = sorted(run(1e9).history[0].norms.values())
    assert not caplog.records
    half = run((norms[9] + norms[10]) / 2)
    (line,) = [record.message for record in caplog.records if "removed" in record.message]
    assert line.startswith("10 of 20 participants were removed at once in round 1 (norm: smallest")
    assert half.history[0].notes == [line]
    assert half.stopped is None
    fewer = run((norms[10] + norms[11]) / 2)
    assert len(fewer.removed) == 9
    assert not caplog.records
    assert fewer.history[0].notes == []


def test_removals_for_updates_that_are_not_finite_are_reported_as_such() -> None:
    x = DATA.data * 1e30
    result = fedcap.Experiment(dataset=(x, DATA.target), rounds=3, workers=1).run()
    assert result.stopped is not None
    assert "no update was finite" in result.stopped
