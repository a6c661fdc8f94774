"""The scale-free test of norms, against NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from detection_tools import crowd, view_of, with_attackers
from scipy import stats

from fedcap.detection import make_defence
from fedcap.detection.robust_norm import RobustNorm
from fedcap.matrix import Rows, shortest_majority
from fedcap.state import Tensors


def oracle_majority(values: np.ndarray) -> tuple[float, float]:
    """The least median of squares: of all intervals between two values that hold a majority, the shortest."""
    count = len(values)
    intervals = [
        (high - low, (low + high) / 2)
        for low in values
        for high in values
        if ((low <= values) & (values <= high)).sum() > count / 2
    ]
    width, middle = min(intervals)
    return middle, 1.4826 * (1 + 5 / max(count - 1, 1)) * width / 2


@pytest.mark.parametrize("count", [1, 2, 3, 8, 21])
def test_the_shortest_majority_is_the_one_found_by_trying_all(count):
    values = np.random.default_rng(count).normal(size=count)
    found = shortest_majority(torch.from_numpy(values))
    np.testing.assert_allclose([float(part) for part in found], oracle_majority(values), rtol=1e-12)


def test_of_many_normal_numbers_the_shortest_majority_has_their_mean_and_deviation():
    values = np.random.default_rng(0).normal(3.0, 2.0, size=100_001)
    middle, spread = shortest_majority(torch.from_numpy(values))
    assert float(middle) == pytest.approx(3.0, abs=0.2)
    assert float(spread) == pytest.approx(2.0, rel=0.02)


def test_many_liars_on_one_side_stand_out_further_than_by_median_and_mad():
    values = np.random.default_rng(1).normal([0.0] * 600 + [10.0] * 400)
    middle, spread = shortest_majority(torch.from_numpy(values))
    by_mad = (10 - np.median(values)) / stats.median_abs_deviation(values, scale="normal")
    assert (10 - float(middle)) / float(spread) > 1.4 * by_mad


def test_robust_norm_is_how_far_the_logarithms_lie_from_the_shortest_majority():
    rows = crowd(12) * torch.linspace(0.2, 3, 12)[:, None]
    logs = np.log(np.linalg.norm(rows.double().numpy(), axis=1))
    middle, spread = oracle_majority(logs)
    expected = (logs - middle) / spread
    [score], _ = RobustNorm().score(view_of(rows), {})
    np.testing.assert_allclose(score.values.numpy(), expected, rtol=1e-4)


def test_clients_with_more_samples_may_go_further_in_proportion():
    lengths, counts = np.array([1.0, 1.1, 0.9, 1.0, 4.0, 4.0]), np.array([10, 10, 10, 10, 40, 10])
    rows = torch.eye(6, dtype=torch.float64) * torch.from_numpy(lengths)
    view = view_of(rows, samples=torch.from_numpy(counts))
    [score], _ = RobustNorm(floor=0.5).score(view, {})
    credit = np.log([1, 1, 1, 1, 3, 1])  # four times as many samples, of which three count
    expected = (np.log(lengths) - credit - oracle_majority(np.log(lengths))[0]) / 0.5
    np.testing.assert_allclose(score.values.numpy(), expected, atol=1e-9)


def test_a_distant_group_is_not_accused_for_its_position():
    updates, far = crowd(10), torch.zeros(10, 400)
    far[8:] = 30.0
    view = view_of(updates, calibrated=Rows(updates + far))
    [score], _ = RobustNorm().score(view, {})
    assert not score.accused.any()
    assert float(view.norms[8:].min()) > 10 * float(view.norms[:8].max())


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_robust_norm_does_not_depend_on_scale(scale):
    rows = crowd(10) * torch.linspace(0.5, 2, 10)[:, None]
    [plain], _ = RobustNorm().score(view_of(rows), {})
    [scaled], _ = RobustNorm().score(view_of(rows * scale), {})
    np.testing.assert_allclose(scaled.values.numpy(), plain.values.numpy(), rtol=1e-4, atol=1e-4)


def test_copies_have_one_vote_so_they_cannot_set_the_scale():
    rows = with_attackers(crowd(8), 50 * crowd(1, seed=9)[0], 7)
    [score], _ = RobustNorm().score(view_of(rows), {})
    assert set(score.accused.nonzero().flatten().tolist()) == set(range(8, 15))


def test_a_row_of_zeros_leads_to_no_accusation():
    rows = torch.cat([crowd(6), torch.zeros(1, 400)])
    [score], _ = RobustNorm().score(view_of(rows), {})
    assert not score.accused.any()


def lengths_of(rows: torch.Tensor) -> np.ndarray:
    return np.linalg.norm(rows.double(), axis=1)


def test_the_scale_is_that_of_all_clients_longest_updates():
    memory: Tensors = {}
    rounds = [crowd(10, seed=seed) * torch.linspace(0.5, 2, 10)[:, None] * (seed + 1) for seed in range(3)]
    rounds.append(rounds[0] / 10)
    for rows in rounds:
        [score], memory = RobustNorm().score(view_of(rows), memory)
    longest = np.log(np.max([lengths_of(rows) for rows in rounds], axis=0))
    middle, spread = oracle_majority(longest)
    expected = (np.log(lengths_of(rounds[-1])) - middle) / spread
    np.testing.assert_allclose(score.values.numpy(), expected, rtol=1e-3)


def test_a_client_that_still_learns_when_others_have_settled_is_not_accused():
    rows = crowd(10)
    _, memory = RobustNorm().score(view_of(rows), {})
    settled = torch.cat([rows[:9] / 100, rows[9:]])
    [fresh], _ = RobustNorm().score(view_of(settled), {})
    [score], _ = RobustNorm().score(view_of(settled), memory)
    assert fresh.accused.tolist() == [False] * 9 + [True]
    assert not score.accused.any()


def unsettled(times: float) -> list[torch.Tensor]:
    """Ten rounds: nine clients settle, and the tenth goes on, so many times as far as all did at first."""
    rounds = [crowd(10, seed=round) for round in range(10)]
    return [torch.cat([rows[:9] / (1 + round), times * rows[9:]]) for round, rows in enumerate(rounds)]


def test_evidence_against_a_client_that_does_not_settle_uses_current_and_longest_norms():
    memory: Tensors = {}
    seen = unsettled(1.75)[:4]
    for rows in seen:
        [score], memory = RobustNorm(floor=0.2).score(view_of(rows), memory)
    now = np.log(lengths_of(seen[-1]))
    longest = np.log(np.max([lengths_of(rows) for rows in seen], axis=0))
    ever, settled = (
        (now - middle) / max(spread, 0.2)
        for middle, spread in (oracle_majority(longest), oracle_majority(now))
    )
    alone = np.maximum(0.8 * (ever - 3.5), -1)
    expected = np.maximum(alone, np.maximum(0.8 * np.minimum(np.minimum(ever - 2, settled - 3.5), 2), -1))
    assert score.evidence is not None
    np.testing.assert_allclose(score.evidence.numpy(), expected, rtol=1e-3)
    assert expected[9] > 0.5 > 0 > alone[9]


@pytest.mark.parametrize(("times", "removed"), [(0.8, False), (1.2, False), (2.0, True)])
def test_a_client_that_goes_further_than_most_ever_did_is_removed_in_time(times: float, removed: bool):
    defence = make_defence(["robust-norm"], "evidence")
    assert defence is not None
    memory: Tensors = defence.start()
    gone = {}
    for round, rows in enumerate(unsettled(times)):
        verdict, memory = defence(view_of(rows), memory)
        gone |= dict.fromkeys(verdict.removed, round)
    assert set(gone) == ({9} if removed else set())
    assert all(round >= 5 for round in gone.values())


def test_a_single_round_is_weak_evidence_against_a_client_that_still_learns():
    memory: Tensors = {}
    for rows in unsettled(1.9):
        [score], memory = RobustNorm().score(view_of(rows), memory)
    assert score.evidence is not None
    assert 1.6 <= float(score.evidence[9]) < 2  # 0.8 times two units, or what its length alone says


def test_going_far_once_when_others_have_settled_does_not_lead_to_removal():
    defence = make_defence(["robust-norm"], "evidence")
    assert defence is not None
    memory: Tensors = defence.start()
    for round, rows in enumerate(unsettled(2.0)):
        calm = torch.cat([rows[:9], rows[9:] / (1 + round)]) if round % 3 else rows
        verdict, memory = defence(view_of(calm), memory)
        assert not verdict.removed


def test_a_round_of_mostly_attackers_does_not_make_their_length_the_usual_one():
    _, memory = RobustNorm().score(view_of(crowd(15)), {})
    for scale in (2, 20, 200):
        few = torch.cat([crowd(15)[:3], scale * crowd(15)[10:]])
        [score], memory = RobustNorm().score(view_of(few, [0, 1, 2, 10, 11, 12, 13, 14]), memory)
    assert set(score.accused.nonzero().flatten().tolist()) == set(range(3, 8))


@pytest.mark.parametrize("times", [10, 100])
def test_honest_clients_may_all_begin_slowly(times: float):
    defence = make_defence(["robust-norm"], "evidence")
    assert defence is not None
    memory: Tensors = defence.start()
    for round in range(8):
        verdict, memory = defence(view_of(crowd(20, seed=round) * (times if round else 1)), memory)
        assert not verdict.removed
        assert not verdict.suspected


def test_clients_that_hide_at_first_do_not_make_the_others_look_long():
    defence = make_defence(["robust-norm"], "evidence")
    assert defence is not None
    memory: Tensors = defence.start()
    generator = torch.Generator().manual_seed(0)
    for round in range(30):
        some = torch.randperm(20, generator=generator)[:5].sort().values
        ids = [torch.tensor([0, 1, 8, 9, 10]), torch.tensor([0, 1, 2, 3, 11])][round] if round < 2 else some
        rows = crowd(20, seed=round)[ids]
        rows[ids < 6] *= 1e-6  # clients 0 to 5 are hostile
        verdict, memory = defence(view_of(rows, ids.tolist()), memory)
        assert not {client for client in verdict.removed if client >= 6}
