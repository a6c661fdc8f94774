"""FedCAP's preset `hardened`: bounded mixing and the robust reference, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from detection_tools import view_of
from helpers import end_round
from torch import nn

import fedcap
from fedcap.detection import Batch, RoundView
from fedcap.matrix import Rows
from fedcap.methods import equations, hardened, make
from fedcap.methods.base import Sent
from fedcap.training import Layout

# --- Mixing


def federation(seed: int, count: int = 9, width: int = 30) -> tuple[np.ndarray, np.ndarray, RoundView]:
    """Return what clients received and the updates they sent, and how the server sees them."""
    rng = np.random.default_rng(seed)
    received, updates = (
        rng.normal(size=(count, width)),
        rng.normal(size=(count, width)) * rng.random((count, 1)),
    )
    reference = torch.from_numpy(rng.normal(size=width))
    recovered = torch.from_numpy(received + updates)
    seen = Rows(recovered, reference)
    return (
        received,
        updates,
        view_of(torch.from_numpy(updates), None, None, seen, recovered, reference),
    )


@pytest.mark.parametrize(("seed", "width", "error"), [(0, 30, 1e-6), (1, 30, 1e-6), (2, 40_000, 0.05)])
def test_gains_are_cosines_between_the_own_update_and_the_way_to_a_model(seed, width, error):
    received, updates, view = federation(seed, width=width)  # wide rows are sketched
    expected = np.zeros((9, 9))
    for k in range(9):
        for i in range(9):
            way = received[i] + updates[i] - received[k]
            expected[k, i] = way @ updates[k] / np.linalg.norm(way) / np.linalg.norm(updates[k])
    assert np.abs(expected).max() > 0.3
    np.testing.assert_allclose(hardened.gains(view).numpy(), expected, atol=error)


def test_gains_predict_the_fall_of_the_loss():
    """The receivers' losses are squared distances to what they want, and they went straight downhill."""
    rng = np.random.default_rng(7)
    received, wanted = rng.normal(size=(2, 6, 40))
    updates = 0.01 * (wanted - received)
    recovered = torch.from_numpy(received + updates)
    seen = Rows(recovered, torch.zeros(40, dtype=torch.float64))
    view = view_of(torch.from_numpy(updates), None, None, seen, recovered, torch.zeros(40))
    for k, row in enumerate(hardened.gains(view).numpy()):
        ways = recovered.numpy() - received[k]
        steps = 1e-4 * ways / np.linalg.norm(ways, axis=1, keepdims=True)
        falls = ((received[k] - wanted[k]) ** 2).sum() - ((received[k] + steps - wanted[k]) ** 2).sum(axis=1)
        assert np.corrcoef(row, falls)[0, 1] > 0.999


def test_gains_of_clients_with_zero_updates_are_finite():
    _, _, view = federation(1)
    view = replace(view, batch=replace(view.batch, updates=torch.zeros_like(view.updates)))
    assert hardened.gains(view).isfinite().all()


@pytest.mark.parametrize("seed", range(4))
def test_the_penalty_is_in_proportion_to_the_distance_below_the_median_gain(seed):
    gains = np.random.default_rng(seed).normal(size=(9, 9)) / 3
    own = [0, 1, 2, -1, 8]
    expected = np.zeros((5, 9))
    for r, k in enumerate(own):
        others = sorted(gains[r, i] for i in range(9) if i != k)
        usual = others[(len(others) - 1) // 2]
        expected[r] = [40 * max(0.0, usual - gains[r, i]) for i in range(9)]
    found = hardened.penalty(torch.from_numpy(gains[:5]), torch.tensor(own))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)


def test_the_only_client_of_a_pool_has_no_penalty():
    assert not hardened.penalty(torch.ones(1, 1), torch.tensor([0])).any()


def test_the_gains_of_a_newcomer_are_the_cosines_of_its_request():
    similarities = torch.tensor([[0.5, 0.5, 0.5, -0.2]])
    weights = hardened.mixing_weights(
        similarities,
        torch.tensor([-1]),
        torch.full((4, 4), 0.3),
        torch.ones(4, dtype=torch.float64),
        0.0,
        0.1,
    )
    np.testing.assert_allclose(weights[0, :3].numpy(), hardened.LARGEST)
    assert float(weights[0, 3]) < 1e-9


def test_without_unusual_clients_hardened_mixing_is_equation_5():
    similarities = torch.full((6, 6), 0.3) + 0.01 * torch.randn(6, 6)
    gains = torch.full((6, 6), 0.5, dtype=torch.float64)
    own, votes = torch.arange(6), torch.ones(6, dtype=torch.float64)
    guarded = hardened.mixing_weights(similarities, own, gains, votes, 5.0, 0.2)
    torch.testing.assert_close(guarded, equations.mixing_weights(similarities, own, 5.0, 0.2))
    models, norms = torch.randn(6, 30), torch.ones(6, dtype=torch.float64)
    mixed = hardened.mix_models(guarded, own, models, norms, torch.randn(30))
    torch.testing.assert_close(mixed, guarded @ models, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_hardened_weights_are_a_softmax_bounded_by_similarity(seed):
    rng = np.random.default_rng(seed)
    similarities, gains = rng.uniform(-1, 1, size=(9, 9)), rng.uniform(-0.3, 0.3, size=(9, 9))
    expected = np.zeros((9, 9))
    for k in range(9):
        others = np.arange(9) != k
        usual = np.sort(gains[k, others])[3]  # the lower of the two in the middle
        alike = np.exp(3 * similarities[k]) * others
        wanted = alike * np.exp(-40 * np.maximum(usual - gains[k], 0))
        shares = 0.8 * np.minimum(wanted / wanted.sum(), 4 * alike / alike.sum())
        expected[k] = np.minimum(shares, 0.25)
        expected[k, k] = 1 - expected[k].sum()
    given = (torch.from_numpy(table) for table in (similarities, gains))
    weights = hardened.mixing_weights(
        next(given), torch.arange(9), next(given), torch.ones(9, dtype=torch.float64), 3.0, 0.2
    )
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-9)


def test_a_client_without_gains_keeps_its_own_model():
    similarities = torch.full((8, 8), -0.2)
    similarities[0, :2] = 1.0  # client 1 is its only friend
    gains = torch.zeros(8, 8)
    gains[0, 1] = -0.4
    weights = hardened.mixing_weights(
        similarities[:1], torch.tensor([0]), gains, torch.ones(8, dtype=torch.float64), 10.0, 0.1
    )
    assert float(weights[0, 0]) > 0.99


def test_no_contributor_has_more_than_the_largest_share_and_rows_sum_to_one():
    similarities = torch.tensor([[1.0, 0.99, 0.0, 0.0, 0.0]] * 5)
    votes = torch.ones(5, dtype=torch.float64)
    own = torch.tensor([0, 1, 2, 3, -1])
    weights = hardened.mixing_weights(similarities, own, torch.full((5, 5), 0.5), votes, 50.0, 0.1)
    torch.testing.assert_close(weights[:4].sum(dim=1), torch.ones(4))
    assert float(weights[4].max()) <= hardened.LARGEST  # a newcomer's rest is the reference's
    assert float(weights[0, 1]) == pytest.approx(hardened.LARGEST)
    assert float(weights[0, 0]) == pytest.approx(1 - hardened.LARGEST)  # the rest stays with the client


def test_copies_share_one_vote_and_suspected_clients_have_none():
    alike = torch.full((1, 5), 0.5)
    votes = torch.tensor([1.0, 1.0, 0.5, 0.5, 0.0], dtype=torch.float64)
    own = torch.tensor([0])
    weights = hardened.mixing_weights(alike, own, torch.full((5, 5), 0.5), votes, 5.0, 0.8)
    np.testing.assert_allclose(weights[0].numpy(), [0.8, 0.1, 0.05, 0.05, 0.0], atol=1e-6)


def test_suspected_clients_have_no_weight_even_if_no_other_contributor_is_left():
    votes = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    alike, gains = torch.full((2, 3), 0.5), torch.full((3, 3), 0.5)
    weights = hardened.mixing_weights(alike, torch.tensor([0, -1]), gains, votes, 5.0, 0.5)
    np.testing.assert_allclose(weights.numpy(), [[1.0, 0, 0], [hardened.LARGEST, 0, 0]], atol=1e-6)


def test_a_long_row_counts_up_to_the_median_norm():
    reference = torch.zeros(2)
    models = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 100.0]])
    norms = models.norm(dim=1).double()
    weights = torch.tensor([[0.5, 0.25, 0.25]])
    mixed = hardened.mix_models(weights, torch.tensor([0]), models, norms, reference)
    np.testing.assert_allclose(mixed.numpy(), [[0.5, 0.25 + 0.25]], rtol=1e-6)


def test_clients_with_large_norms_count_fully_for_each_other():
    norms = torch.tensor([1.0, 1.0, 1.0, 8.0, 8.0], dtype=torch.float64)
    scales = hardened.scales(norms, torch.tensor([0, 3, -1]))
    np.testing.assert_allclose(scales[0].numpy(), [1, 1, 1, 1 / 8, 1 / 8])
    np.testing.assert_allclose(scales[1].numpy(), [1, 1, 1, 1, 1])
    np.testing.assert_allclose(scales[2].numpy(), scales[0].numpy())


def test_no_mixture_is_longer_than_its_receiver_or_the_median():
    norms = torch.tensor([0.5, 1.0, 1.0, 1.0, 6.0, 7.0, 8.0], dtype=torch.float64)
    direction = torch.tensor([0.6, 0.8])  # all go one way, so that nothing cancels
    models = 1 + norms[:, None].float() * direction
    weights = torch.full((7, 7), 1 / 7)
    mixed = hardened.mix_models(weights, torch.arange(7), models, norms, torch.ones(2)) - 1
    bounds = norms.maximum(norms.median())
    assert bool((mixed.norm(dim=1).double() <= bounds + 1e-6).all())
    assert float(mixed[0].norm()) > 0.9 * float(norms.median())  # those further out count, up to there


def test_the_reference_moves_by_a_median_length_at_most():
    last = torch.tensor([1.0, 1.0])
    steps = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, 1e6]])
    models, norms = last + steps, steps.norm(dim=1).double()
    samples, votes = torch.tensor([1.0, 1.0, 2.0, 4.0]).double(), torch.ones(4).double()
    moved = hardened.reference(models, samples, norms, votes, last) - last
    clipped = steps / norms[:, None] * norms.clamp_max(float(norms.median()))[:, None]
    expected = clipped.mean(dim=0)  # no client counts for more than the median client, of one sample
    np.testing.assert_allclose(moved.numpy(), expected.numpy(), atol=1e-1)
    assert float(moved.norm()) <= float(norms.median()) + 1e-1


@pytest.mark.parametrize("votes", [[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
def test_the_reference_stays_finite_without_votes_or_movement(votes):
    last, still = torch.tensor([1.0, 1.0]), torch.zeros(4, dtype=torch.float64)
    still[3] = 2.0
    models = last + still[:, None].float()
    made = hardened.reference(models, torch.ones(4), still, torch.tensor(votes).double(), last)
    np.testing.assert_allclose(made.numpy(), last.numpy())


@pytest.mark.parametrize("zeros", [1, 2])
def test_zero_updates_of_half_of_the_clients_do_no_harm(zeros):
    method = make("fedcap", preset="hardened")
    layout = Layout.of(nn.Linear(3, 2))
    state = method.init(torch.zeros(layout.size), layout)
    rows = torch.randn(2 * zeros, layout.size, generator=torch.Generator().manual_seed(0))
    rows[:zeros] = 0
    uploads = Batch(torch.arange(len(rows)), rows, torch.ones(len(rows)))
    for _ in range(3):
        ended = end_round(method, state, uploads)
        assert not ended.verdict.removed
        state = ended.state
    assert method.inspect(state).global_model.isfinite().all()


def test_models_wider_than_a_block_are_limited_in_all_columns():
    models, reference = torch.randn(4, 5000), torch.randn(5000)
    weights, norms = torch.full((2, 4), 0.2), torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)
    mixed = hardened.mix_models(weights, torch.tensor([0, -1]), models, norms, reference)
    scale = np.minimum(np.array([[2.0], [2.0]]) / norms.numpy(), 1.0) * 0.2
    expected = scale @ models.numpy() + (1 - scale.sum(axis=1, keepdims=True)) * reference.numpy()
    np.testing.assert_allclose(mixed.numpy(), expected, atol=1e-5)


def test_without_calibration_mixing_still_goes_by_lengths_and_gains_from_the_reference():
    layout = Layout.of(nn.Linear(20, 10))
    states = []
    for calibrate in (True, False):
        method = make("fedcap", preset="hardened", calibrate=calibrate, detect=False)
        state = method.init(torch.zeros(layout.size), layout)
        for seed in range(3):
            rows = torch.randn(6, layout.size, generator=torch.Generator().manual_seed(seed)) + 0.5
            sent = Sent.to_all(torch.arange(6), torch.full((layout.size,), float(seed)))
            uploads = Batch(torch.arange(6), rows, torch.ones(6))
            state = end_round(method, state, uploads, sent).state
        states.append(state)
    lengths = (states[1].models - states[1].model).norm(dim=1)
    np.testing.assert_allclose(states[1].norms.numpy(), lengths.numpy(), rtol=1e-5)
    np.testing.assert_allclose(states[1].norms.numpy(), states[0].norms.numpy(), rtol=1e-5)
    np.testing.assert_allclose(states[1].gains.numpy(), states[0].gains.numpy(), atol=1e-5)


# --- alpha from the cosines


def test_auto_alpha_is_a_hundred_variances_within_bounds():
    rows = torch.randn(12, 40, generator=torch.Generator().manual_seed(1))
    rows[:6] += 1.0
    unit = torch.nn.functional.normalize(rows, dim=1)
    cosines = unit @ unit.T
    others = cosines.numpy()[~np.eye(12, dtype=bool)]
    assert 1 < equations.choose_alpha(cosines) < 20
    assert equations.choose_alpha(cosines) == pytest.approx(100 * others.var(), rel=1e-4)
    assert equations.choose_alpha(torch.eye(12)) == 1
    signs = torch.tensor([1.0, -1.0]).repeat(6)
    assert equations.choose_alpha(signs[:, None] * signs) == 20
    assert equations.choose_alpha(torch.ones(1, 1)) == 1


def test_auto_alpha_separates_groups_and_mixes_unrelated_clients():
    method = make("fedcap", alpha="auto", phi=0.0)
    layout = Layout.of(nn.Linear(20, 10))
    generator = torch.Generator().manual_seed(0)
    uploads = Batch(torch.arange(8), 0.1 * torch.randn(8, layout.size, generator=generator), torch.ones(8))
    state = end_round(method, method.init(torch.zeros(layout.size), layout), uploads).state
    assert float(method.send(state, torch.arange(8), {}).mixing.max()) < 0.25
    uploads.updates[:4] += 0.3
    state = end_round(method, method.init(torch.zeros(layout.size), layout), uploads).state
    mixing = method.send(state, torch.arange(8), {}).mixing
    assert float(mixing[:4, :4].sum(dim=1).min()) > 0.9


# --- The method


@pytest.fixture(scope="module")
def poisoned() -> dict[str, fedcap.Result]:
    cuckoo = {"name": "cuckoo", "length": "longest"}
    return {
        preset: fedcap.Experiment(
            dataset="digits", method={"name": "fedcap", "preset": preset}, attack=cuckoo, rounds=12, workers=1
        ).run()
        for preset in ("paper", "hardened")
    }


def honest_removed(result: fedcap.Result) -> int:
    return sum(not client.malicious and client.id in result.removed for client in result.clients)


@pytest.mark.slow
def test_the_longest_cuckoo_harms_the_hardened_preset_less_than_the_paper(poisoned):
    assert honest_removed(poisoned["hardened"]) == 0
    assert poisoned["hardened"].tacc > poisoned["paper"].tacc + 2


@pytest.mark.parametrize("attack", ["lie", "min-max", "min-sum", "ipm", "model-replacement"])
def test_colluders_and_giants_are_removed_within_three_rounds(attack):
    result = fedcap.Experiment(
        dataset="digits", method={"name": "fedcap", "preset": "hardened"}, attack=attack, rounds=4, workers=1
    ).run()
    assert (result.fnr, result.fpr) == (0, 0)
    assert result.rounds_to_removal <= 3
