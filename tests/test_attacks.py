"""Every attack against its definition, in NumPy and SciPy; and what all attacks promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from fedcap import attacks

ALL = [
    "label-flipping",
    "sign-flipping",
    "model-replacement",
    "lie",
    "lie-unbounded",
    "min-max",
    "min-sum",
    "ipm",
]
DIRECTIONS = ["std", "sign", "unit"]


def honest(rows: int = 7, columns: int = 11, seed: int = 0, dtype: type = np.float32) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0.1, 1, (rows, columns)).astype(dtype))


def flags(rows: int, *malicious: int) -> torch.Tensor:
    return torch.tensor([row in malicious for row in range(rows)])


# --- What all attacks promise


def identical(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two matrices are the same, NaN being the same as NaN."""
    return torch.equal(one.nan_to_num(7.5), two.nan_to_num(7.5))


@pytest.mark.parametrize("name", attacks.names())
@pytest.mark.parametrize("bad", [(), (1, 4)])
def test_honest_rows_and_the_input_stay_unchanged(name: str, bad: tuple[int, ...]):
    updates = honest()
    before, malicious = updates.clone(), flags(7, *bad)
    attacked = attacks.make(name)(updates, malicious, torch.Generator().manual_seed(0))
    assert torch.equal(updates, before)
    assert torch.equal(attacked[~malicious], before[~malicious])
    assert attacked.shape == before.shape
    assert attacked.dtype == before.dtype
    assert attacked.data_ptr() != updates.data_ptr()


@pytest.mark.parametrize("name", attacks.names())
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_all_rows_may_be_malicious(name: str, rows: int):
    attacked = attacks.make(name)(honest(rows), torch.ones(rows, dtype=torch.bool))
    assert attacked.shape == (rows, 11)
    if name in ALL and name != "lie-unbounded":
        assert attacked.isfinite().all()


@pytest.mark.parametrize("name", attacks.names())
def test_an_attack_that_uses_no_honest_updates_does_not_depend_on_the_malicious_rows(name: str):
    attack = attacks.make(name)
    updates, malicious = honest(), flags(7, 1, 4)
    other = updates.clone()
    other[malicious] = honest(2, seed=1) * 3
    seeded = [torch.Generator().manual_seed(0) for _ in range(2)]
    same = identical(attack(updates, malicious, seeded[0]), attack(other, malicious, seeded[1]))
    assert same or attack.uses_honest_updates
    if name in ALL:
        assert same is not attack.uses_honest_updates


@pytest.mark.parametrize("name", attacks.names())
def test_the_same_generator_seed_gives_the_same_rows(name: str):
    rows = [attacks.make(name)(honest(), flags(7, 0, 3), torch.Generator().manual_seed(5)) for _ in range(2)]
    assert identical(*rows)


@pytest.mark.parametrize("name", attacks.names())
def test_updates_and_flags_must_fit_each_other(name: str):
    with refused("data-shape"):
        attacks.make(name)(honest(7), flags(6, 0))
    with refused("data-shape"):
        attacks.make(name)(honest(7)[0], flags(7, 0))


@pytest.mark.parametrize("name", [name for name in ALL if name != "label-flipping"])
def test_only_label_flipping_touches_labels(name: str):
    labels = torch.tensor([0, 1, 2])
    assert torch.equal(attacks.make(name).poison_labels(labels, 3), labels)


# --- Names and options


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ipm", {"epsilon": -1.0}),
        ("ipm", {"epsilon": 0.0}),
        ("ipm", {"epsilon": math.nan}),
        ("ipm", {"epsilon": "much"}),
        ("model-replacement", {"scale": -2.0}),
        ("sign-flipping", {"scale": -1.0}),
        ("lie", {"z": math.nan}),
        ("lie", {"z": math.inf}),
        ("min-max", {"direction": "sideways"}),
        ("min-sum", {"direction": ""}),
        ("label-flipping", {"shift": 0.5}),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(name: str, options: dict[str, object]):
    with refused("bad-value"):
        attacks.make(name, **options)


# --- Label flipping, sign flipping, model replacement


def test_label_flipping_moves_every_label_by_one_and_leaves_updates_alone():
    attack = attacks.make("label-flipping")
    labels = torch.tensor([0, 1, 8, 9, 9])
    assert attack.poison_labels(labels, 10).tolist() == [(y + 1) % 10 for y in labels.tolist()]
    assert labels.tolist() == [0, 1, 8, 9, 9]
    assert torch.equal(attack(honest(), flags(7, 0, 2)), honest())


def test_sign_flipping_turns_the_sign():
    updates, malicious = honest(), flags(7, 2, 5)
    assert torch.equal(attacks.make("SF")(updates, malicious)[malicious], -updates[malicious])
    scaled = attacks.make("SF", scale=2.5)(updates, malicious)[malicious]
    np.testing.assert_allclose(scaled.numpy(), -2.5 * updates[malicious].numpy(), rtol=1e-6)


def test_model_replacement_scales_by_the_number_of_participants():
    updates, malicious = honest(), flags(7, 2, 5)
    attacked = attacks.make("MR")(updates, malicious)[malicious]
    np.testing.assert_allclose(attacked.numpy(), 7 * updates[malicious].numpy(), rtol=1e-6)
    attacked = attacks.make("MR", scale=0.5)(updates, malicious)[malicious]
    np.testing.assert_allclose(attacked.numpy(), 0.5 * updates[malicious].numpy(), rtol=1e-6)


# --- IPM


@pytest.mark.parametrize(("epsilon", "factor"), [(None, 7), (0.5, 0.5), (20.0, 20)])
def test_ipm_sends_minus_epsilon_times_the_benign_mean(epsilon: float | None, factor: float):
    updates, malicious = honest(), flags(7, 0, 6)
    expected = -factor * sum(updates[k].double().numpy() for k in (1, 2, 3, 4, 5)) / 5
    for row in attacks.make("ipm", epsilon=epsilon)(updates, malicious)[malicious]:
        np.testing.assert_allclose(row.numpy(), expected, rtol=1e-5, atol=1e-6)


# --- LIE


@pytest.mark.parametrize(
    ("rows", "malicious"), [(5, 1), (5, 2), (10, 3), (20, 6), (20, 10), (21, 10), (36, 10), (100, 30)]
)
@pytest.mark.parametrize("name", ["lie", "lie-unbounded"])
def test_z_max_is_the_quantile_of_the_normal_distribution(name: str, rows: int, malicious: int):
    supporters = rows // 2 + 1 - malicious
    expected = norm.ppf((rows - malicious - supporters) / (rows - malicious))
    assert attacks.make(name).z_max(rows, malicious) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("malicious", [1, 3, 6])
def test_lie_sends_the_mean_minus_z_population_deviations(malicious: int):
    updates = honest(13, 9)
    mask = flags(13, *range(malicious))
    rows = updates.double().numpy()
    z = norm.ppf((13 - malicious - (7 - malicious)) / (13 - malicious))
    expected = []
    for column in rows.T:
        mean = sum(column) / 13
        expected.append(mean - z * math.sqrt(sum((value - mean) ** 2 for value in column) / 13))
    for row in attacks.make("lie")(updates, mask)[mask]:
        np.testing.assert_allclose(row.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_bounded_z_is_finite_for_any_number_of_attackers():
    attack = attacks.make("lie")
    for rows in range(1, 41):
        found = [attack.z_max(rows, malicious) for malicious in range(1, rows + 1)]
        assert all(map(math.isfinite, found)), rows
        assert found == sorted(found), rows


@pytest.mark.parametrize(("rows", "malicious"), [(20, 11), (20, 15), (21, 11), (5, 4), (3, 3)])
def test_only_the_unbounded_form_sends_infinities_to_a_round_that_attackers_hold(rows: int, malicious: int):
    assert rows // 2 + 1 - malicious <= 0
    updates, mask = honest(rows), flags(rows, *range(malicious))
    assert not attacks.make("lie-unbounded")(updates, mask)[0].isfinite().all()
    assert attacks.make("lie")(updates, mask).isfinite().all()


# --- Min-Max and Min-Sum


def direction_of(rows: np.ndarray, direction: str) -> np.ndarray:
    mean = rows.mean(axis=0)
    if direction == "std":
        return -np.sqrt(((rows - mean) ** 2).mean(axis=0))
    return -np.sign(mean) if direction == "sign" else -mean / np.sqrt((mean**2).sum())


def reach(name: str, rows: np.ndarray, point: np.ndarray) -> float:
    """The left side of either bound: how far a point is from the rows."""
    squares = [float(((point - row) ** 2).sum()) for row in rows]
    return math.sqrt(max(squares)) if name == "min-max" else sum(squares)


def bound(name: str, rows: np.ndarray) -> float:
    """The right side of either bound: how far the rows are from each other."""
    return max(reach(name, rows, row) for row in rows)


def assert_as_far_as_allowed(
    name: str, direction: str, rows: np.ndarray, sent: np.ndarray, rtol: float = 1e-7
):
    mean, perturbation = rows.mean(axis=0), direction_of(rows, direction)
    gamma = float((sent - mean) @ perturbation / (perturbation @ perturbation))
    scale = max(1.0, float(np.abs(rows).max()))
    np.testing.assert_allclose(sent, mean + gamma * perturbation, rtol=rtol, atol=rtol / 100 * scale)
    assert gamma > 0
    assert reach(name, rows, sent) <= bound(name, rows)
    assert reach(name, rows, mean + 1.0001 * gamma * perturbation) > bound(name, rows)


@pytest.mark.parametrize("name", ["min-max", "min-sum"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(2, 12),
    columns=st.integers(1, 30),
    seed=st.integers(0, 2**32 - 1),
    shift=st.floats(-3, 3),
)
def test_the_bound_is_met_and_tight(
    name: str, direction: str, rows: int, columns: int, seed: int, shift: float
):
    updates = np.random.default_rng(seed).normal(shift, 1, (rows, columns))
    mask = torch.arange(rows) < max(1, rows // 3)
    sent = attacks.make(name, direction=direction)(torch.from_numpy(updates), mask)
    assert torch.equal(sent[0], sent[mask][-1])
    assert_as_far_as_allowed(name, direction, updates, sent[0].numpy())


@pytest.mark.parametrize("name", ["min-max", "min-sum"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_single_precision_rows_stay_within_the_bound_too(name: str, direction: str):
    for seed in range(5):
        updates = honest(10, 3000, seed)
        sent = attacks.make(name, direction=direction)(updates, flags(10, 0, 1, 2))[0]
        assert_as_far_as_allowed(name, direction, updates.double().numpy(), sent.double().numpy(), 1e-5)


@pytest.mark.parametrize("name", ["min-max", "min-sum"])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_equal_rows_stay_as_they_are(name: str, direction: str):
    updates = honest(1, 5).repeat(6, 1)
    attacked = attacks.make(name, direction=direction)(updates, flags(6, 0, 1))
    np.testing.assert_allclose(attacked.numpy(), updates.numpy(), rtol=1e-5, atol=1e-6)
    assert not attacks.make(name, direction=direction)(torch.zeros(4, 5), flags(4, 0)).any()
