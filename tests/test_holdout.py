"""`holdout`: some of the training samples replace the test samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import call, refused, without_times
from run_tools import SMALL

import fedcap


def dealt(**settings):
    return fedcap.Experiment(**{**SMALL, **settings}).load_data()


def test_the_last_training_samples_are_held_out_and_the_test_samples_are_gone():
    whole, held = dealt(), dealt(holdout=0.25)
    for before, train, test in zip(whole.train, held.train, held.test, strict=True):
        count = round(0.25 * len(before))
        assert len(test) == count
        assert torch.equal(torch.cat([train.x, test.x]), before.x)
        assert torch.equal(torch.cat([train.y, test.y]), before.y)


def test_at_least_one_sample_is_held_out():
    assert [len(part) for part in dealt(holdout=0.001).test] == [1] * 6


def test_a_client_that_would_have_nothing_left_to_train_on_is_refused_by_name():
    with refused("too-few-samples"):
        dealt(holdout=0.99)


def test_a_run_without_holdout_is_called_as_before():
    experiment = fedcap.Experiment(**SMALL)
    assert "holdout" not in experiment.settings()
    assert experiment.digest() == fedcap.Experiment(**SMALL, holdout=None).digest()
    assert experiment.digest() != fedcap.Experiment(**SMALL, holdout=0.25).digest()


@pytest.mark.parametrize("standardise", [False, True])
def test_what_the_test_samples_are_does_not_change_a_run_with_holdout(standardise: bool):
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(120, 4)).astype(np.float32), np.arange(120) % 3
    x[:, 0] += y
    test = np.arange(120) % 4 == 0
    poisoned = np.where(test[:, None], 1e6, x).astype(np.float32), np.where(test, (y + 1) % 3, y)

    def result(x, y, **settings):
        dataset = {"x": x, "y": y, "test": test, "clients": 4, "partition": "iid", "standardise": standardise}
        settings = {**SMALL, "dataset": dataset, "attack": "none", **settings}
        return without_times(fedcap.Experiment(**settings).run())

    # The partition sees all labels; an iid one does not look at them.
    assert result(x, y, holdout=0.25) == result(*poisoned, holdout=0.25)
    assert result(x, y) != result(*poisoned)


def test_the_result_says_that_it_is_not_on_test_samples(tmp_path, capsys):
    sizes = ["dataset.clients=6", "dataset.samples=30", "holdout=0.25"]
    sets = [word for size in sizes for word in ("--set", size)]
    code, text, _ = call(capsys, "run", "--rounds", 1, "--workers", 1, "--out", tmp_path / "run", *sets)
    assert code == 0
    assert "0.25 of the training samples" in text
    assert "0.25 of the training samples" in call(capsys, "show", tmp_path / "run")[1]
