"""FedCAP's equations against NumPy written out by hand in double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedcap import matrix as matrices
from fedcap.matrix import Rows, cosines
from fedcap.methods import equations


def matrix(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    dot = sum(float(x) * float(y) for x, y in zip(a, b, strict=True))
    length_a = math.sqrt(sum(float(x) ** 2 for x in a))
    length_b = math.sqrt(sum(float(x) ** 2 for x in b))
    return dot / (length_a * length_b) if length_a and length_b else 0.0


def mixing_weights(request: np.ndarray, pool: np.ndarray, own: int, alpha: float, phi: float) -> list[float]:
    """One row of Eqs. 4 and 5: softmax over the others times 1 − phi, phi for oneself."""
    if len(pool) == 1:
        return [1.0]
    likeness = {i: alpha * cosine(request, pool[i]) for i in range(len(pool)) if i != own}
    highest = max(likeness.values())
    terms = {i: math.exp(value - highest) for i, value in likeness.items()}
    total = sum(terms.values())
    shared = 1 - phi if own >= 0 else 1.0
    return [phi if i == own else shared * terms[i] / total for i in range(len(pool))]


# --- Eqs. 4 and 5: the weights


POOL, OTHERS = matrix(5, 7), matrix(3, 7, seed=1)
WITH_ZEROS = torch.cat([POOL[:3], torch.zeros(1, 7, dtype=torch.float64)])
SAME = POOL[:1].repeat(4, 1)
ALL = [0, 1, 2, 3, 4]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 2.0, 10.0])
@pytest.mark.parametrize("phi", [0.0, 0.1, 0.3, 1.0])
@pytest.mark.parametrize(
    ("requests", "pool", "own"),
    [
        pytest.param(POOL, POOL, ALL, id="all clients of the pool"),
        pytest.param(OTHERS, POOL, [-1, -1, -1], id="newcomers"),
        pytest.param(torch.cat([POOL[2:3], OTHERS, POOL[:1]]), POOL, [2, -1, -1, -1, 0], id="both"),
        pytest.param(OTHERS[:1], POOL[:1], [0], id="the only client of a pool"),
        pytest.param(OTHERS[:1], POOL[:1], [-1], id="a newcomer to a pool of one"),
        pytest.param(WITH_ZEROS, WITH_ZEROS, ALL[:4], id="an update of zeros"),
        pytest.param(WITH_ZEROS[3:], POOL, [-1], id="a request of zeros"),
        pytest.param(SAME, SAME, ALL[:4], id="equal updates"),
        pytest.param(SAME[:1], SAME, [-1], id="a request equal to all updates"),
    ],
)
def test_mixing_weights_are_equation_5(
    requests: torch.Tensor, pool: torch.Tensor, own: list[int], alpha: float, phi: float
):
    weights = equations.customization_weights(requests, pool, torch.tensor(own), alpha, phi)
    expected = [
        mixing_weights(row.numpy(), pool.numpy(), mine, alpha, phi)
        for row, mine in zip(requests, own, strict=True)
    ]
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(weights.sum(dim=1).numpy(), np.ones(len(own)), rtol=1e-12)
    assert (weights >= 0).all()


def test_large_alpha_picks_the_nearest_other_and_stays_finite():
    pool = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0]], dtype=torch.float64)
    weights = equations.customization_weights(pool, pool, torch.tensor([0, 1, 2]), 1e6, 0.3)
    np.testing.assert_allclose(weights.numpy(), [[0.3, 0.7, 0], [0.7, 0.3, 0], [0, 0.7, 0.3]], atol=1e-12)


def test_single_precision_is_close_to_double():
    pool = matrix(6, 2000)
    own = torch.arange(6)
    single = equations.customization_weights(pool.float(), pool.float(), own, 10.0, 0.3)
    assert single.dtype == torch.float32
    expected = [mixing_weights(row, pool.numpy(), k, 10.0, 0.3) for k, row in enumerate(pool.numpy())]
    np.testing.assert_allclose(single.numpy(), expected, rtol=1e-4)


# --- Eqs. 3 and 6, recovery, calibration, detection


def test_customised_models_are_the_weighted_sums_of_the_pool():
    weights, models = matrix(2, 3), matrix(3, 4, seed=1)
    expected = [
        [sum(float(weights[r, n] * models[n, d]) for n in range(3)) for d in range(4)] for r in range(2)
    ]
    np.testing.assert_allclose(equations.mix_models(weights, models).numpy(), expected, rtol=1e-12)


def test_the_global_model_weighs_each_model_by_its_samples():
    models, samples = matrix(3, 4), [10, 1, 89]
    expected = [sum(samples[n] * float(models[n, d]) for n in range(3)) / 100 for d in range(4)]
    for dtype in (torch.int64, torch.float64):
        found = equations.global_model(models, torch.tensor(samples, dtype=dtype))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)
    assert equations.global_model(models.float(), torch.tensor([1.0, 2.0, 3.0])).dtype == torch.float32


def test_huge_sample_counts_do_not_overflow():
    samples = torch.tensor([1e300, 1e300], dtype=torch.float64)
    found = equations.global_model(torch.tensor([[1.0], [3.0]]), samples)
    assert found.tolist() == [2.0]


def test_calibrating_takes_the_reference_off():
    models, reference = matrix(2, 3), matrix(3, seed=2)
    calibrated = equations.calibrate(models, reference)
    for n in range(2):
        for d in range(3):
            assert float(calibrated[n, d]) == float(models[n, d]) - float(reference[d])


@pytest.mark.parametrize("count", [1, 2, 3, 7, 9])
def test_a_pool_compared_with_itself_in_stripes_and_mixed_in_blocks(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("STRIPE", 3), ("BLOCK", 16), ("NARROW", 5)):
        monkeypatch.setattr(matrices, name, size)
    monkeypatch.setattr(equations, "NARROW", 5)
    models = torch.randn(count, 50, generator=torch.Generator().manual_seed(0))
    origin = models.mean(dim=0) / 2
    pool = Rows(models, origin)
    found = cosines(pool, pool)
    rows = (models - origin).double().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(found.numpy(), unit @ unit.T, atol=1e-6)
    assert torch.equal(found, found.T)
    weights = torch.rand(4, count, generator=torch.Generator().manual_seed(1))
    mixed = equations.mix_models(weights, models)
    np.testing.assert_allclose(mixed.numpy(), weights.numpy() @ models.numpy(), atol=1e-5)


def test_column_blocks_cover_every_column_once():
    assert list(matrices.column_blocks(7, 3)) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert list(matrices.column_blocks(slice(2, 6), 4)) == [slice(2, 6)]
    assert list(matrices.column_blocks(0, 3)) == []
