"""The scale-free detectors and the policy that adds up evidence, against NumPy and SciPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from detection_tools import crowd, view_of, with_attackers
from scipy import stats
from torch import Tensor

from fedcap.detection import Accusation, Score, get_values, make_defence
from fedcap.detection.collusion import Collusion, centrality, unusualness
from fedcap.detection.direction import Direction
from fedcap.detection.evidence import Evidence
from fedcap.matrix import Rows, cosines, deviations, evidence, sketch
from fedcap.state import Tensors, owned

# --- Medians and deviations


@pytest.mark.parametrize("count", [1, 2, 7, 10])
def test_with_one_vote_each_deviations_are_those_of_scipy(count):
    values = np.random.default_rng(count).normal(size=count)
    spread = stats.median_abs_deviation(values, scale="normal") if count > 1 else 0.0
    expected = (values - np.median(values)) / max(spread, 1e-3)
    found = deviations(torch.from_numpy(values), torch.ones(count, dtype=torch.float64), 1e-3)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-9)


def test_a_minority_cannot_move_the_scale_far():
    honest = torch.linspace(0.9, 1.1, 14, dtype=torch.float64)
    far = torch.full((6,), 1e9, dtype=torch.float64)
    votes = torch.ones(20, dtype=torch.float64)
    assert float(deviations(torch.cat([honest, far]), votes, 1e-9)[:14].abs().max()) < 3


# --- Evidence


def test_evidence_is_an_exponential_number_beyond_the_usual():
    z = torch.tensor([4.0, 6.5, 3.5, -150.0], dtype=torch.float64)
    np.testing.assert_allclose(evidence(z, 4.0).numpy(), [0.0, 2.0, -0.4, -1.0], atol=1e-12)


def test_the_expected_evidence_against_honest_clients_is_below_one():
    rng = np.random.default_rng(0)
    beyond = rng.random(400_000) < 0.1
    z = np.where(beyond, 4 + rng.exponential(size=400_000), 4 - 1 / 0.8)
    e = np.exp(evidence(torch.from_numpy(z), 4.0).numpy())
    assert e.mean() < 1


def scored(values: Sequence[float]) -> list[Score]:
    z = torch.tensor(values, dtype=torch.float64)
    return [Score("robust-norm", z, 6.0, evidence=evidence(z, 4.0))]


def rounds_of(values: Sequence[float], rounds: int, policy: Evidence | None = None) -> list[set[int]]:
    """Return the clients that are removed in each of several equal rounds."""
    policy = policy or Evidence()
    memory: Tensors = policy.start()
    view = view_of(crowd(len(values)))
    removed = []
    for _ in range(rounds):
        scores = scored(values)
        accused = {row: scores[0].accusation(row) for row in scores[0].accused.nonzero().flatten().tolist()}
        gone, memory = policy.decide(accused, scores, view, memory)
        removed.append(set(gone))
    return removed


def test_evidence_adds_up_until_chance_is_ruled_out():
    removed = rounds_of([0, 0, 0, 7.0, 0], 4)  # 0.8 · 3 a round; log 1000 = 6.9 is passed in the third
    assert removed[:3] == [set(), set(), {3}]
    assert rounds_of([0, 0, 0, 13.0, 0], 1) == [{3}]
    assert rounds_of([0, 0, 0, 7.0, 0], 2, Evidence(chance=0.05))[1] == {3}


def test_usual_deviations_never_add_up():
    assert not set.union(*rounds_of([3.9, 2, 0, -5, 3.9], 200))


def test_good_rounds_give_no_credit():
    policy, view = Evidence(), view_of(crowd(5))
    memory = policy.start()
    for _ in range(50):
        _, memory = policy.decide({}, scored([0, 0, 0, -9, 0]), view, memory)
    gone, _ = policy.decide({}, scored([0, 0, 0, 13.0, 0]), view, memory)
    assert set(gone) == {3}


def test_a_majority_of_a_round_is_never_removed():
    assert not set.union(*rounds_of([20, 20, 20, 0, 0], 5))
    assert rounds_of([20, 20, 0, 0, 0], 1) == [{0, 1}]


def test_a_majority_of_all_clients_is_never_removed_even_over_rounds():
    policy, rows = Evidence(), crowd(7)
    memory, gone = policy.start(), []
    for first in range(6):  # one more of the remaining clients is found guilty in each round
        left = torch.arange(7)[first:]
        view = view_of(rows[first:], left)
        removed, memory = policy.decide({}, scored([20.0, *[0.0] * (6 - first)]), view, memory)
        gone += removed
    assert gone == [0, 1, 2]


def test_broken_rows_count_towards_the_majority_that_is_never_removed():
    policy, view = Evidence(), view_of(crowd(4))
    broken = {row: Accusation("norm", math.nan, math.inf, "not finite") for row in (4, 5)}
    removed, memory = policy.decide(broken, scored([0.0] * 4), view, policy.start())
    assert set(removed) == {4, 5}
    removed, memory = policy.decide({}, scored([20.0, 0.0, 0.0, 0.0]), view, memory)
    assert set(removed) == {0}
    later = view_of(crowd(3), torch.tensor([1, 2, 3]))
    assert not policy.decide({}, scored([20.0, 0.0, 0.0]), later, memory)[0]


def test_broken_and_guilty_together_are_never_a_majority_of_a_round():
    policy, memory = Evidence(), Evidence().start()
    for first in (100, 200, 300, 400):  # many other clients took part before
        _, memory = policy.decide(
            {}, scored([0.0] * 5), view_of(crowd(5), torch.arange(first, first + 5)), memory
        )
    broken = {row: Accusation("norm", math.nan, math.inf, "not finite") for row in (5, 6, 7)}
    removed, _ = policy.decide(broken, scored([20.0, 20.0, 0.0, 0.0, 0.0]), view_of(crowd(5)), memory)
    assert set(removed) == {5, 6, 7}


def test_a_readmitted_client_no_longer_counts_as_removed():
    defence = make_defence(["robust-norm"], "evidence")
    assert defence is not None
    policy, view = Evidence(), view_of(crowd(4))
    removed, memory = policy.decide({}, scored([20.0, 20.0, 0.0, 0.0]), view, policy.start())
    assert set(removed) == {0, 1}
    memory = defence.forget(memory, 0)
    again = view_of(crowd(2), torch.tensor([2, 3]))
    assert set(policy.decide({}, scored([20.0, 0.0]), again, memory)[0]) == set()
    back = view_of(crowd(3), torch.tensor([0, 2, 3]))
    assert set(policy.decide({}, scored([0.0, 20.0, 0.0]), back, memory)[0]) == {2}


def test_no_client_is_removed_in_a_round_in_which_all_norms_jumped():
    policy, rows = Evidence(), crowd(5)
    _, memory = policy.decide({}, scored([0] * 5), view_of(rows), policy.start())
    gone, memory = policy.decide({}, scored([0, 0, 0, 20, 0]), view_of(5 * rows), memory)
    assert not gone
    gone, _ = policy.decide({}, scored([0, 0, 0, 20, 0]), view_of(5 * rows), memory)
    assert set(gone) == {3}


def test_the_accusation_states_the_strength_of_the_evidence():
    policy = Evidence(chance=0.01)
    gone, _ = policy.decide({}, scored([0, 0, 14.0]), view_of(crowd(3)), policy.start())
    assert "evidence 1e+02 to 1" in gone[2].sentence


def test_evidence_that_is_not_a_number_does_not_protect_later():
    policy, view = Evidence(), view_of(crowd(4))
    broken = scored([0, 0, math.nan, 0])
    _, memory = policy.decide({}, broken, view, policy.start())
    gone, _ = policy.decide({}, scored([0, 0, 20.0, 0]), view, memory)
    assert set(gone) == {2}


def test_one_short_round_does_not_erase_the_record():
    policy, view = Evidence(), view_of(crowd(4))
    memory = policy.start()
    for z in (6.0, 6.0, 6.0, -150.0, 6.0, 6.0, 6.0):  # 1.6 a round for log 1000 = 6.9, and one round of grace
        gone, memory = policy.decide({}, scored([0, 0, z, 0]), view, memory)
    assert set(gone) == {2}


def test_if_most_rows_are_not_finite_no_client_is_removed_for_it():
    policy = Evidence()
    accused = {client: Accusation("norm", math.nan, math.inf, "not finite") for client in (5, 6, 7)}
    view = view_of(crowd(2))
    assert not policy.decide(accused, scored([0, 0]), view, policy.start())[0]
    assert set(policy.decide({5: accused[5]}, scored([0, 0]), view, policy.start())[0]) == {5}


# --- collusion


def collusion_over(rounds: Sequence[Tensor]) -> list[set[int]]:
    memory: Tensors = {}
    found = []
    for rows in rounds:
        [score], memory = Collusion().score(view_of(rows), memory)
        found.append(set(score.accused.nonzero().flatten().tolist()))
    return found


def test_equal_and_odd_rows_are_accused_in_the_second_round():
    odd = [with_attackers(crowd(14, seed=s), -3 * crowd(14, seed=s).mean(dim=0), 6) for s in range(2)]
    assert collusion_over(odd) == [set(), set(range(14, 20))]


def test_what_was_odd_is_half_forgotten_in_each_ordinary_round():
    alone = [crowd(14, seed=s) for s in range(9)]
    odd = [with_attackers(rows[1:], -3 * rows.mean(dim=0), 2) for rows in alone]  # the last two are one
    values, memory = [], Collusion().start()
    for rows in (odd[0], *(crowd(15, seed=s) for s in range(1, 8))):
        _, memory = Collusion().score(view_of(rows), memory)
        values.append(memory["before.values"][13:].clone())
        ordinary = unusualness(view_of(rows))[13:]
        if len(values) > 1:
            expected = np.minimum(values[-2].numpy(), (values[-2] + ordinary).numpy() / 2)
            np.testing.assert_allclose(values[-1].numpy(), expected, rtol=1e-6)
    assert float(values[0].min()) > 10
    assert float(values[-1].max()) < 5
    [score], _ = Collusion().score(view_of(odd[8]), memory)
    assert not score.accused.any()  # one odd round long ago is no second one


def test_colluders_who_pause_for_a_round_are_accused_in_their_second_one():
    odd = [with_attackers(crowd(14, seed=s), -3 * crowd(14, seed=s).mean(dim=0), 6) for s in range(2)]
    assert collusion_over([odd[0], crowd(20, seed=5), odd[1]]) == [set(), set(), set(range(14, 20))]


def test_the_owner_of_an_ordinary_row_cannot_be_framed_by_copies():
    copied = [with_attackers(crowd(14, seed=s), crowd(14, seed=s)[4], 6) for s in range(6)]
    assert not set.union(*collusion_over(copied))


def test_unusualness_combines_three_deviations():
    rows = with_attackers(crowd(14), crowd(14).mean(dim=0) - 0.05, 3)
    view = view_of(rows)
    numpy = rows.double().numpy()
    one, two = np.abs(numpy).sum(axis=1), np.linalg.norm(numpy, axis=1)
    votes = [1] * 14 + [1 / 3] * 3

    def z(values, floor):
        once = values[:15]  # the three copies are one
        middle = np.median(once)
        return (values - middle) / max(1.4826 * np.median(np.abs(once - middle)), floor)

    np.testing.assert_allclose(view.votes.numpy(), votes)
    expected = np.sqrt(
        z(centrality(view).numpy(), 0.05) ** 2
        + np.maximum(0, z(np.log(one / two), 0.05)) ** 2
        + z(numpy.sum(axis=1) / two / np.sqrt(400), 0.02) ** 2
    )
    np.testing.assert_allclose(unusualness(view).numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("made", ["mean", "lopsided", "signs"])
def test_rows_that_no_single_client_would_send_are_accused_at_any_length(made):
    def rows(scale, seed):
        honest = crowd(14, seed=seed) ** 3  # as uneven as updates are
        mean = honest.mean(dim=0)
        vectors = {"mean": mean, "lopsided": honest[0] - honest[0].std() / 2, "signs": mean.sign()}
        return with_attackers(honest, scale * vectors[made], 6)

    for scale in (0.01, 1.0):
        rounds = [rows(scale, seed) for seed in range(3)]
        assert collusion_over(rounds)[-1] == set(range(14, 20))


def test_a_client_much_shorter_than_the_others_is_not_framed_by_copies():
    def rows(seed):
        honest = crowd(14, seed=seed)
        honest[4] *= 0.05
        return with_attackers(honest, honest[4], 6)

    assert not set.union(*collusion_over([rows(seed) for seed in range(6)]))


def test_one_odd_round_of_a_victim_is_not_enough_to_frame_it():
    rounds = [with_attackers(crowd(14, seed=s), crowd(14, seed=s)[4], 6) for s in range(4)]
    rounds[2][[4, *range(14, 20)]] = 0.1
    assert not set.union(*collusion_over(rounds))


def test_copyists_who_take_turns_are_no_evidence_against_their_victim():
    odd = -3 * crowd(14).mean(dim=0)
    rounds = []
    for turn in range(4):
        rows = torch.cat([crowd(14, seed=turn), odd[None], crowd(2, seed=90 + turn)])
        rows[15 + turn % 2] = odd  # client 14 sends it every time; 15 and 16 take turns
        rounds.append(rows)
    assert 14 not in set.union(*collusion_over(rounds))


def test_good_behaviour_at_first_does_not_protect_colluders():
    ordinary = [with_attackers(crowd(14, seed=s), crowd(14, seed=s)[4], 6) for s in range(4)]
    odd = [with_attackers(crowd(14, seed=s), -3 * crowd(14, seed=s).mean(dim=0), 6) for s in (8, 9)]
    assert collusion_over([*ordinary, *odd])[-1] == set(range(14, 20))


def test_a_forgotten_client_has_no_evidence_against_it():
    defence = make_defence(["collusion", "robust-norm"], "evidence")
    assert defence is not None
    memory: Tensors = defence.start()
    rows = crowd(5)
    rows[3] *= 3
    _, memory = defence(view_of(rows), memory)
    assert float(get_values(owned("policy.books", memory), torch.tensor([3]))) > 0
    left = defence.forget(memory, 3)
    assert float(get_values(owned("policy.books", left), torch.tensor([3]))) == 0
    assert left.keys() == memory.keys()


def test_different_rows_are_never_collusion():
    assert not set.union(*collusion_over([crowd(20, seed=s) * (1 + s) for s in range(4)]))


# --- direction


def test_direction_is_the_robust_z_score_of_the_median_cosine():
    rows = crowd(12, common=2.0)
    rows[10:] *= -1
    unit = rows.double().numpy() / np.linalg.norm(rows.double().numpy(), axis=1, keepdims=True)
    agreement = unit @ unit.T
    others = [np.delete(agreement[k], np.flatnonzero(agreement[k] > 0.999)) for k in range(12)]
    support = np.array([stats.trim_mean(row, 0.25) for row in others])
    spread = max(stats.median_abs_deviation(support, scale="normal"), 0.05)
    expected = np.where(support < 0, -(support - np.median(support)) / spread, 0)
    [score], _ = Direction().score(view_of(rows), {})
    np.testing.assert_allclose(score.values.numpy(), expected, atol=0.05)
    assert score.accused.tolist() == [False] * 10 + [True] * 2


# --- Sketches


def sketch_of(rows: Tensor, width: int, seed: int) -> Tensor:
    return sketch(Rows(rows), rows.double().norm(dim=1), width, seed)


def test_a_sketch_keeps_cosines():
    rows = crowd(12, width=60_000)
    exact = cosines(Rows(rows), Rows(rows))
    short = Rows(sketch_of(rows, 4096, seed=1))
    assert short.matrix.shape == (12, 4096)
    error = (cosines(short, short) - exact).abs()
    assert 0 < float(error.max()) < 5 / math.sqrt(4096)


def test_short_rows_are_only_brought_to_length_one_and_absurd_ones_stay_numbers():
    rows = crowd(3, width=1000)
    rows[1] = 0
    expected = rows[[0, 2]] / rows[[0, 2]].norm(dim=1, keepdim=True)
    torch.testing.assert_close(sketch_of(rows, 1000, seed=1)[[0, 2]], expected)
    rows[2] = torch.nn.functional.one_hot(torch.tensor(5), 1000) * 1.5e19
    for width in (64, 1000):
        assert sketch_of(rows, width, seed=1).isfinite().all()
    assert view_of(rows).update_cosines.isfinite().all()


def test_columns_a_width_apart_meet_only_by_chance():
    rows = torch.zeros(2, 5 * 64)
    rows[0, 3], rows[1, 3 + 64] = 1, 1
    met = sum(bool((sketch_of(rows, 64, seed).abs().sum(dim=0) > 1).any()) for seed in range(200))
    assert met < 20


@pytest.mark.parametrize("width", [128, 1000])
@pytest.mark.parametrize("scale", [1.0, 1e15])
def test_the_sketch_of_rows_with_an_origin_is_that_of_their_differences(width, scale):
    origin, rows = crowd(1, width=1000, seed=3)[0] * scale, crowd(70, width=1000) * scale
    seen = Rows(rows, origin)
    torch.testing.assert_close(
        sketch(seen, seen.norms(), width, 1), sketch_of(rows - origin, width, 1), atol=1e-5, rtol=1e-4
    )


def test_equal_long_rows_are_still_equal_and_others_are_not():
    view = view_of(with_attackers(crowd(5, width=40_000), crowd(1, 40_000, seed=8)[0], 3))
    expected = torch.eye(8, dtype=torch.bool)
    expected[5:, 5:] = True
    assert torch.equal(view.duplicates, expected)
    np.testing.assert_allclose(view.votes.numpy(), [1] * 5 + [1 / 3] * 3)
