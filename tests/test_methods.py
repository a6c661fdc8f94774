"""Every method in the round loop, with any rule, small rounds and malicious clients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import Killed, Killer, end_round, without_times
from run_tools import assert_same
from torch import nn
from training_tools import assert_near

import fedcap
from fedcap import methods
from fedcap.aggregators import make as make_rule
from fedcap.detection import Batch
from fedcap.methods.fedavg import combine
from fedcap.simulation import WorkerPool, make_pool
from fedcap.training import Layout

RIVALS = {
    "fedavg": {"rule": "geometric-median"},
    "ditto": {"rule": {"name": "bucketing", "rule": "multi-krum"}},
    "fedrod": {},
    "fedfomo": {"models": 4},
    "fltrust": {},
}
QUICK = {
    "dataset": {"name": "digits", "clients": 10, "samples": 40},
    "rounds": 2,
    "training": {"lr": 0.05, "epochs": 1},
    "workers": 1,
}


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with make_pool(2) as workers:
        yield workers


# --- Rows and rules in a round


@pytest.mark.parametrize(
    "name", ["mean", "krum", "multi-krum", "median", "geometric-median", "gas", "bucketing"]
)
def test_rows_that_are_not_finite_do_not_count_under_any_rule(name: str):
    rows = torch.randn(10, 6)
    rows[2], rows[5, 0] = math.nan, math.inf
    uploads = Batch(torch.arange(10), rows, torch.ones(10), assumed_malicious=3)
    method = methods.make("fedavg", rule=name)
    state = method.init(torch.zeros(6), Layout.of(nn.Linear(5, 1)))
    found = end_round(method, state, uploads)
    assert found.uncounted == {2, 5}
    assert math.isnan(found.view.norms[2])
    assert list(found.notes) == []
    good = [k for k in range(10) if k not in (2, 5)]
    assert torch.equal(found.state.model, make_rule(name)(rows[good], torch.ones(8), 1))


def test_a_round_too_small_for_m_lowers_m_with_a_note():
    uploads = Batch(torch.arange(4), torch.randn(4, 3), torch.ones(4), assumed_malicious=2)
    notes = []
    step = combine(make_rule("multi-krum"), uploads, notes)
    assert torch.equal(step, make_rule("multi-krum")(uploads.updates, malicious=1))
    assert notes == ["2 malicious of 4 rows assumed: MultiKrum, given M = 1, tolerates 0"]


def test_a_robust_rule_that_tolerates_fewer_than_assumed_adds_a_note():
    uploads = Batch(torch.arange(20), torch.randn(20, 3), torch.ones(20), assumed_malicious=6)
    notes = []
    combine(make_rule("bucketing", rule="median", size=2), uploads, notes)
    assert notes == ["6 malicious of 20 rows assumed: Bucketing, given M = 6, tolerates 4"]
    for rule in ("median", "mean"):
        notes = []
        combine(make_rule(rule), uploads, notes)
        assert notes == []


def test_a_round_too_small_for_the_rule_uses_the_median_with_a_note():
    uploads = Batch(torch.arange(2), torch.randn(2, 3), torch.ones(2), assumed_malicious=0)
    notes = []
    step = combine(make_rule("krum"), uploads, notes)
    assert_near(step, uploads.updates.mean(dim=0))
    assert notes == ["2 rows are too few for Krum: median used"]
    assert combine(make_rule("krum"), uploads.only(torch.zeros(2, dtype=torch.bool)), []) is None


# --- Every method, in the one loop


def rival(name: str, **settings: object) -> fedcap.Experiment:
    return fedcap.Experiment(method={"name": name, **RIVALS[name]}, **{**QUICK, **settings})


@pytest.mark.parametrize("attack", ["lie", "label-flipping"])
@pytest.mark.parametrize("name", RIVALS)
def test_every_method_plays_under_attack_with_half_of_the_clients(name: str, attack: str):
    result = rival(name, attack=attack, participation=0.5).run()
    assert not result.diverged
    assert result.tacc_shared is not None
    assert [len(record.participants) for record in result.history] == [5, 5]
    assert result.removed == {}


@pytest.mark.parametrize(
    ("method", "attack"),
    [
        *(({"name": name, **options}, "min-max") for name, options in RIVALS.items()),
        ({"name": "fedcap", "preset": "hardened"}, "lie"),
        ({"name": "fedcap", "pools": "bfloat16"}, "ipm"),
        ("fedavg", {"name": "noisy", "attack": "steady"}),
        ("fedavg", "attack_tools:Counting"),
    ],
    ids=str,
)
def test_a_resumed_run_with_two_workers_has_the_same_bits(
    method: Any, attack: Any, tmp_path: Path, pool: WorkerPool
):
    settings = {**QUICK, "participation": 0.6, "rounds": 3}
    experiment = fedcap.Experiment(method=method, attack=attack, **settings)
    whole = experiment.run(out=tmp_path / "whole")
    half = tmp_path / "half"

    with pytest.raises(Killed):
        experiment.run(out=half, observers=[Killer(after=2)])
    resumed = experiment.run(out=half, pool=pool)
    assert without_times(resumed) == without_times(whole)
    assert [r.norms for r in resumed.history] == [r.norms for r in whole.history]
    assert_same(half, tmp_path / "whole")


@pytest.mark.parametrize("form", ["nan", "huge"])
@pytest.mark.parametrize("name", RIVALS)
def test_hostile_rows_do_not_stop_any_method(name: str, form: str):
    attack = {"name": "malformed", "form": form, "clients": [3, 7]}
    options = RIVALS[name] | ({"rule": "median"} if name in ("ditto", "fedrod") else {})
    result = fedcap.Experiment(
        method={"name": name, **options}, attack=attack, **{**QUICK, "rounds": 3}
    ).run()
    assert not result.diverged
    expected = {"3": "not finite", "7": "not finite"} if form == "nan" else {}
    assert all(record.refused == expected for record in result.history)


# --- What they are for

SHOWN = {"rounds": 6, "eval_every": 6, "training": {"lr": 0.1}}


@pytest.mark.slow
def test_on_digits_personal_models_beat_fedavgs_shared_one(pool: WorkerPool):
    results = {
        name: fedcap.Experiment(method=name, eval_every=30).run(pool=pool)
        for name in ("fedavg", "ditto", "fedrod")
    }
    shared = results["fedavg"].tacc_shared
    assert all(result.tacc_personal > shared for result in results.values())


def test_under_ipm_the_mean_collapses_and_multi_krum_does_not(pool: WorkerPool):
    mean = fedcap.Experiment(method="fedavg", attack="ipm", **SHOWN).run(pool=pool)
    method = {"name": "fedavg", "rule": "multi-krum"}
    robust = fedcap.Experiment(method=method, attack="ipm", **SHOWN).run(pool=pool)
    assert mean.tacc_shared < 30
    assert robust.tacc_shared > mean.tacc_shared + 20
