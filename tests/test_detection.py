"""Scores and accusations, the defence, its policy over rounds, and its memory, for every method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import detection_tools
import numpy as np
import pytest
import torch
from helpers import Killed, Killer, end_round, refused
from torch import Tensor, nn

import fedcap
from fedcap import detection, methods
from fedcap.detection import Batch, Defence, Detector, RoundView, Score, get_values, make_defence, set_values
from fedcap.detection.strikes import Strikes
from fedcap.matrix import Rows
from fedcap.runs import read
from fedcap.state import Tensors
from fedcap.training import Layout


def view_of(rows: Tensor) -> RoundView:
    return detection_tools.view_of(rows, range(10, 10 + len(rows)))


def of_lengths(*lengths: float) -> RoundView:
    return view_of(torch.tensor([[length, 0.0] for length in lengths]))


@dataclass(frozen=True)
class Sum(Detector):
    """Adds up each client's norms over the rounds; slots by place, for clients that are always there."""

    limit: float = 10.0

    def score(self, view: RoundView, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        total = view.norms + memory.get("total", torch.zeros(len(view), dtype=torch.float64))
        said = "a sum of {value:.1f} is more than {limit:g}"
        return [Score("sum", total, self.limit, said)], {"total": total}


# --- The view of a round


def test_norms_and_cosines_are_those_of_the_calibrated_rows():
    rng = np.random.default_rng(0)
    models, reference = rng.normal(size=(4, 50)), rng.normal(size=50)
    seen = Rows(torch.from_numpy(models), torch.from_numpy(reference))
    view = detection_tools.view_of(torch.from_numpy(models) * 7, calibrated=seen)
    rows = models - reference
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(view.norms.numpy(), np.linalg.norm(rows, axis=1), rtol=1e-12)
    np.testing.assert_allclose(view.cosines.numpy(), unit @ unit.T, atol=1e-12)


def test_finite_rows_are_judged_by_the_norm_if_models_were_recovered():
    rows = torch.tensor([[1.0, 2.0], [1e30, 1e30], [math.nan, 0.0], [math.inf, 0.0]])
    assert view_of(rows).finite.tolist() == [True, True, False, False]
    recovered = replace(view_of(rows), recovered=rows)
    assert recovered.finite.tolist() == [True, False, False, False]


# --- Scores and accusations


def test_a_score_accuses_values_over_the_limit():
    score = Score("norm", torch.tensor([0.0, 9.999, 10.0, 10.001, math.inf, math.nan]), 10.0)
    assert score.accused.tolist() == [False, False, False, True, True, False]


def test_an_accusation_has_the_score_value_limit_and_sentence():
    reason = Score("norm", torch.tensor([1.0, 12.3456]), 10.0).accusation(1)
    assert (reason.score, reason.limit, reason.sentence) == ("norm", 10.0, "norm 12.35 over 10")
    assert reason.value == pytest.approx(12.3456)
    with refused("bad-sentence"):
        Score("norm", torch.tensor([1.0]), 10.0, "{length} is too long")


def test_the_papers_detector_compares_the_norm_with_a_fixed_limit():
    detector = detection.make("norm", limit=5)
    (score,), memory = detector.score(of_lengths(4, 5, 6), detector.start())
    assert score.values.tolist() == [4, 5, 6]
    assert score.accused.tolist() == [False, False, True]
    assert memory == {}
    assert detector.limits == {"norm": 5}
    with refused("bad-value"):
        detection.make("norm", limit=0)


# --- Memory by client


def test_values_are_stored_by_client():
    memory = set_values({}, torch.tensor([3, 7]), torch.tensor([1.0, 2.0]))
    assert get_values(memory, torch.tensor([2, 3, 7, 9]), default=-1).tolist() == [-1, 1, 2, -1]
    memory = set_values(memory, torch.tensor([5, 7]), torch.tensor([5.0, 8.0]))
    assert memory["ids"].tolist() == [3, 5, 7]
    assert get_values(memory, torch.tensor([7, 3, 5])).tolist() == [8, 1, 5]
    assert get_values({}, torch.tensor([1])).tolist() == [0]
    assert (
        get_values(set_values({}, torch.tensor([], dtype=torch.long), torch.tensor([])), torch.tensor([1]))
        == 0
    )


# --- The defence


def test_by_default_a_client_is_removed_at_the_first_accusation():
    defence = make_defence(["norm"], "strikes")
    verdict, _ = defence(of_lengths(1, 20, 3), defence.start())
    assert list(verdict.removed) == [11]
    assert verdict.suspected == {}
    assert [score.name for score in verdict.scores] == ["norm"]


def test_strikes_are_counted_over_rounds():
    defence = make_defence(["norm"], {"name": "strikes", "strikes": 2})
    memory = defence.start()
    verdict, memory = defence(of_lengths(1, 20, 3), memory)
    assert verdict.removed == {}
    assert list(verdict.suspected) == [11]
    verdict, memory = defence(of_lengths(50, 1, 3), memory)
    assert list(verdict.suspected) == [10]
    verdict, memory = defence(of_lengths(60, 20, 3), memory)
    assert list(verdict.removed) == [10, 11]
    assert memory["policy.ids"].tolist() == [10, 11]
    assert memory["policy.values"].tolist() == [2, 2]


def test_several_detectors_each_have_their_scores_and_their_memory():
    defence = Defence({"norm": detection.make("norm", limit=15), "sum": Sum(limit=10)}, Strikes())
    verdict, memory = defence(of_lengths(4, 20, 6), defence.start())
    assert [score.name for score in verdict.scores] == ["norm", "sum"]
    assert verdict.removed[11].sentence == "norm 20 over 15"  # the first that says so
    verdict, memory = defence(of_lengths(4, 1, 6), memory)
    assert verdict.removed[12].sentence == "a sum of 12.0 is more than 10"
    assert memory["sum.total"].tolist() == [8, 21, 12]


@pytest.mark.parametrize(
    ("detectors", "code"),
    [(["nrom"], "unknown-name"), (["norm", {"name": "norm"}], "name-taken"), ([3], "bad-value")],
)
def test_unknown_detectors_are_errors_at_once(detectors: list[object], code: str):
    with refused(code):
        make_defence(detectors, "strikes")


def test_without_detectors_there_is_no_defence():
    assert make_defence([], "strikes") is None
    assert methods.make("fedavg").defence is None
    assert not methods.make("fedcap", detect=False).detects


@dataclass(frozen=True)
class OverTheMedian(Detector):
    """How much longer than the median; the shape, the name and the limit are what a test wants."""

    name: str = "over"
    cut: int = 0

    def score(self, view: RoundView, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        values = view.norms / view.norms.median()
        return [Score(self.name, values[: len(values) - self.cut], 2.0)], memory


def test_a_row_of_nan_does_not_change_the_other_scores():
    defence = Defence({"over": OverTheMedian()}, Strikes())
    rows = torch.tensor([[1.0, 0.0], [math.nan, 0.0], [1.1, 0.0], [9.0, 0.0]])
    verdict, _ = defence(view_of(rows), defence.start())
    assert {client: reason.sentence for client, reason in verdict.removed.items()} == {
        11: "not finite",
        13: "over 8.182 over 2",
    }
    assert math.isnan(verdict.scores[0].values[1])
    assert verdict.scores[0].values[[0, 2, 3]].tolist() == pytest.approx([1 / 1.1, 1, 9 / 1.1])


def test_a_score_that_is_not_a_number_accuses_no_client_and_is_noted():
    defence = Defence({"over": OverTheMedian()}, Strikes())
    verdict, _ = defence(of_lengths(0, 0, 0), defence.start())
    assert verdict.removed == {}
    assert list(verdict.notes) == ["score 'over' is not a number for 3 of 3 clients: it does not judge them"]


def test_an_empty_round_reaches_no_detector_and_keeps_the_memory():
    defence = Defence({"sum": Sum()}, Strikes())
    _, memory = defence(of_lengths(1, 2), defence.start())
    verdict, after = defence(view_of(torch.empty(0, 2)), memory)
    assert (verdict.removed, list(verdict.scores)) == ({}, [])
    assert after["sum.total"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("detectors", "code"),
    [
        ({"a": OverTheMedian(cut=1)}, "data-shape"),
        ({"a": OverTheMedian(), "b": OverTheMedian()}, "name-taken"),
    ],
)
def test_what_a_detector_returns_is_checked(detectors: dict[str, Detector], code: str):
    defence = Defence(detectors, Strikes())
    with refused(code):
        defence(of_lengths(1, 2, 3), defence.start())


# --- Every method can have a detector


@pytest.mark.parametrize("name", [name for name in methods.names() if name != "local"])
def test_a_detector_removes_clients_under_any_method(name: str):
    data = {"name": "digits", "samples": 50} if name == "fltrust" else "digits"
    result = fedcap.Experiment(
        dataset=data,
        method={"name": name, "detectors": {"name": "norm", "limit": 50}},
        attack={"name": "model-replacement", "scale": 10_000, "clients": [3, 7]},
        rounds=3,
        training={"lr": 0.05, "epochs": 1},
        workers=1,
    ).run()
    assert {client: removal.round for client, removal in result.removed.items()} == {"3": 1, "7": 1}
    assert (result.fpr, result.fnr) == (0, 0)
    assert not result.diverged
    assert result.history[0].limits == {"norm": 50}
    assert result.history[0].removed["3"].score == "norm"
    assert "over 50" in result.removed["3"].reason


def test_fedcaps_own_limit_is_t_norm_unless_the_detector_has_one():
    assert methods.make("fedcap", t_norm=4).defence.limits == {"norm": 4}
    own = methods.make("fedcap", t_norm=4, detectors=({"name": "norm", "limit": 7},))
    assert own.defence.limits == {"norm": 7}


def test_an_upload_of_a_suspect_does_not_count_in_its_round():
    method = methods.make("fedavg", detectors="norm", policy={"name": "strikes", "strikes": 3})
    state = method.init(torch.zeros(2), Layout.of(nn.Linear(1, 1)))
    rows = torch.tensor([[1.0, 1.0], [100.0, 0.0], [3.0, 1.0]])
    found = end_round(method, state, Batch(torch.arange(3), rows, torch.ones(3), assumed_malicious=1))
    assert found.verdict.removed == {}
    assert found.uncounted == {1}
    assert found.verdict.suspected[1].sentence == "norm 100 over 10"
    assert found.state.model.tolist() == [2, 1]


def test_suspicion_does_not_lower_the_number_of_malicious_rows_that_is_assumed():
    options = {"detectors": "norm", "rule": "krum"}
    state = methods.make("fedavg").init(torch.zeros(2), Layout.of(nn.Linear(1, 1)))
    rows = torch.tensor([[1.0, 1.0], [100.0, 0.0], [3.0, 1.0], [math.nan, 0.0], [2.0, 2.0]])
    seen = []
    for strikes in (3, 1):
        method = methods.make("fedavg", **options, policy={"name": "strikes", "strikes": strikes})
        uploads = Batch(torch.arange(5), rows, torch.ones(5), assumed_malicious=2)
        found = end_round(method, state, uploads)
        seen.append(found.view.counted(found.verdict).assumed_malicious)
    assert seen == [1, 0]  # the row of NaN in both; the long one only once it is removed


def test_memory_is_kept_over_a_killed_run(tmp_path: Path):
    method = {"name": "fedcap", "t_norm": 1e-3, "policy": {"name": "strikes", "strikes": 3}}
    settings = {"method": method, "rounds": 4, "training": {"lr": 0.05, "epochs": 1}, "workers": 1}
    whole = fedcap.Experiment(**settings).run(out=tmp_path / "whole")

    with pytest.raises(Killed):
        fedcap.Experiment(**settings).run(out=tmp_path / "half", observers=[Killer(after=2)])
    resumed = fedcap.Experiment(**settings).run(out=tmp_path / "half")
    assert resumed.removed == whole.removed
    assert {removal.round for removal in whole.removed.values()} == {3}
    assert read(tmp_path / "half").settings.method.options["policy"]["strikes"] == 3
