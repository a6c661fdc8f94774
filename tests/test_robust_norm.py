"""The scale-free test of length, against NumPy and SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from detection_tools import crowd, look_of, with_attackers
from scipy import stats

from fedcap.detection import Look
from fedcap.detection.robust_norm import RobustNorm
from fedcap.matrices import Rows
from fedcap.state import Tensors


def test_robust_norm_is_the_robust_z_score_of_the_logarithms():
    rows = crowd(12) * torch.linspace(0.2, 3, 12)[:, None]
    logs = np.log(np.linalg.norm(rows.double().numpy(), axis=1))
    expected = (logs - np.median(logs)) / stats.median_abs_deviation(logs, scale="normal")
    [score], _ = RobustNorm().score(look_of(rows), {})
    np.testing.assert_allclose(score.values.numpy(), expected, rtol=1e-4)


def test_clients_with_more_samples_may_go_further_in_proportion():
    lengths, counts = np.array([1.0, 1.1, 0.9, 1.0, 4.0, 4.0]), np.array([10, 10, 10, 10, 40, 10])
    rows = torch.eye(6, dtype=torch.float64) * torch.from_numpy(lengths)
    look = Look(1, torch.arange(6), rows, Rows(rows), samples=torch.from_numpy(counts))
    [score], _ = RobustNorm(floor=0.5).score(look, {})
    credit = np.log([1, 1, 1, 1, 3, 1])  # four times as many samples, of which three count
    expected = (np.log(lengths) - credit - np.median(np.log(lengths))) / 0.5
    np.testing.assert_allclose(score.values.numpy(), expected, atol=1e-9)


def test_where_a_group_lies_is_not_held_against_it():
    updates, far = crowd(10), torch.zeros(10, 400)
    far[8:] = 30.0
    look = Look(1, torch.arange(10), updates, Rows(updates + far))
    [score], _ = RobustNorm().score(look, {})
    assert not score.accused.any()
    assert float(look.norms[8:].min()) > 10 * float(look.norms[:8].max())


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_robust_norm_does_not_depend_on_scale(scale):
    rows = crowd(10) * torch.linspace(0.5, 2, 10)[:, None]
    [plain], _ = RobustNorm().score(look_of(rows), {})
    [scaled], _ = RobustNorm().score(look_of(rows * scale), {})
    np.testing.assert_allclose(scaled.values.numpy(), plain.values.numpy(), rtol=1e-4, atol=1e-4)


def test_copies_have_one_vote_so_they_cannot_set_the_scale():
    rows = with_attackers(crowd(8), 50 * crowd(1, seed=9)[0], 7)
    [score], _ = RobustNorm().score(look_of(rows), {})
    assert set(score.accused.nonzero().flatten().tolist()) == set(range(8, 15))


def test_a_row_of_zeros_accuses_nobody():
    rows = torch.cat([crowd(6), torch.zeros(1, 400)])
    [score], _ = RobustNorm().score(look_of(rows), {})
    assert not score.accused.any()


def test_whoever_still_learns_when_the_others_have_settled_is_not_too_far():
    rows = crowd(10) * torch.linspace(0.5, 2, 10)[:, None]
    _, memory = RobustNorm().score(look_of(rows), {})
    settled = torch.cat([rows[:9] / 100, rows[9:]])
    [fresh], _ = RobustNorm().score(look_of(settled), {})
    [score], after = RobustNorm().score(look_of(settled), memory)
    assert fresh.accused.tolist() == [False] * 9 + [True]
    assert not score.accused.any()
    logs, then = (np.log(np.linalg.norm(each.double(), axis=1)) for each in (settled, rows))
    spread = stats.median_abs_deviation(then, scale="normal")
    np.testing.assert_allclose(score.values.numpy(), (logs - np.median(then)) / spread, rtol=1e-4)
    assert after is memory


def test_the_usual_length_is_that_of_the_round_in_which_it_was_largest():
    memory: Tensors = {}
    for times in (2, 3, 2, 0.1):
        _, memory = RobustNorm().score(look_of(times * crowd(10)), memory)
    rows = torch.cat([crowd(9), 9 * crowd(10)[9:]])
    [score], _ = RobustNorm().score(look_of(rows), memory)
    usual = np.log(3 * np.linalg.norm(crowd(10).double(), axis=1))
    spread = max(stats.median_abs_deviation(usual, scale="normal"), 0.15)
    expected = (np.log(np.linalg.norm(rows.double(), axis=1)) - np.median(usual)) / spread
    np.testing.assert_allclose(score.values.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_a_round_of_mostly_attackers_does_not_make_their_length_the_usual_one():
    _, memory = RobustNorm().score(look_of(crowd(10)), {})
    attackers = 100 * crowd(6, seed=1) * torch.linspace(0.1, 10, 6)[:, None]
    [score], after = RobustNorm().score(look_of(torch.cat([crowd(4), attackers])), memory)
    assert set(score.accused.nonzero().flatten().tolist()) == set(range(4, 10))
    assert float(after["middle"] - memory["middle"]) == pytest.approx(math.log(2))
    assert after["spread"] == memory["spread"]
