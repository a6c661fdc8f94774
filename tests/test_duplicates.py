"""Duplicates up to noise: evenness against NumPy, and which clients are found."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from detection_tools import view_of

import fedcap
from fedcap.detection import noise as noises
from fedcap.detection.noise import noise_apart
from fedcap.matrix import Rows, cosines

NOISES = {
    "normal": lambda generator, shape: torch.randn(shape, generator=generator),
    "uniform": lambda generator, shape: torch.rand(shape, generator=generator) - 0.5,
}


def trained(count: int, width: int = 3000, seed: int = 0) -> torch.Tensor:
    """Return rows that have something in common and differ as training does: much in few weights."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count + 1, width, generator=generator).pow(3)[1:] + torch.randn(
        width, generator=generator
    ).pow(3)


def colluders(row: torch.Tensor, count: int, share: float, kind: str = "normal") -> torch.Tensor:
    noise = NOISES[kind](torch.Generator().manual_seed(1), (count, len(row)))
    return row + share * row.norm() * noise / noise.norm(dim=1, keepdim=True)


def found(rows: torch.Tensor) -> np.ndarray:
    return noise_apart(rows, cosines(Rows(rows), Rows(rows))).numpy()


def groups(count: int, members: range) -> np.ndarray:
    same = np.zeros((count, count), dtype=bool)
    same[members.start : members.stop, members.start : members.stop] = True
    return same & ~np.eye(count, dtype=bool)


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("share", [0.01, 0.25, 0.73])
def test_copies_with_even_noise_of_their_own_are_found_however_much(share, kind):
    honest = trained(14)
    rows = torch.cat([honest, colluders(honest.mean(dim=0), 6, share, kind)])
    np.testing.assert_array_equal(found(rows), groups(20, range(14, 20)))


def test_honest_clients_are_not_noise_apart():
    assert not found(trained(20)).any()


def test_if_all_clients_add_noise_no_client_is_taken_for_a_colluder():
    generator = torch.Generator().manual_seed(3)
    alike = trained(12) + 2 * torch.randn(3000, generator=generator).pow(3)
    noise = torch.randn(12, 3000, generator=generator) / 3000**0.5
    noisy = alike + 0.8 * alike.norm(dim=1, keepdim=True) * noise
    near = cosines(Rows(noisy), Rows(noisy)).fill_diagonal_(0).max(dim=1).values
    assert float(near.min()) > noises.COMMON_COSINE  # it is not for want of likeness
    assert float(np.median(evenness((noisy - noisy.roll(1, dims=0)).numpy()))) > 0.7
    assert not found(noisy).any()


def test_an_honest_client_with_noise_has_no_duplicate():
    """Its nearest is ordinary, and differs from it by noise, but is nearer to others."""
    rows = trained(12, seed=4)
    kin = rows[0] + 0.2 * trained(3, seed=5)
    noisy = colluders(rows[0], 1, 0.6)
    assert not found(torch.cat([rows[1:], kin, noisy])).any()


@pytest.mark.parametrize("width", [15, 100, 499])
def test_narrow_rows_are_not_judged(width):
    honest = trained(14, width=width)
    assert not found(torch.cat([honest, colluders(honest.mean(dim=0), 6, 0.25)])).any()


def test_rows_that_differ_by_rounding_are_the_same():
    honest = trained(14)
    row = honest.mean(dim=0)
    rounded = torch.stack([row * (1 + 1e-7 * k) for k in range(6)])
    np.testing.assert_array_equal(found(torch.cat([honest, rounded])), groups(20, range(14, 20)))


def test_noise_that_is_near_no_row_has_no_duplicate():
    honest = trained(14)
    noise = 3 * torch.randn(6, honest.shape[1], generator=torch.Generator().manual_seed(2))
    assert not found(torch.cat([honest, noise])).any()


def test_a_row_of_nan_does_not_hide_duplicates():
    honest = trained(14)
    rows = torch.cat(
        [honest, colluders(honest.mean(dim=0), 5, 0.25), torch.full((1, honest.shape[1]), torch.nan)]
    )
    np.testing.assert_array_equal(found(rows), groups(20, range(14, 19)))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_rows_are_compared_without_an_error(count):
    assert found(trained(count) if count else torch.empty(0, 50)).shape == (count, count)


def evenness(differences: np.ndarray) -> np.ndarray:
    """What is found between rows that have these differences."""
    rows = torch.from_numpy(np.concatenate([differences + 7.0, np.full_like(differences, 7.0)]))
    first = torch.arange(len(differences))
    return noises.evenness(rows, first, first + len(differences)).numpy()


def test_evenness_is_the_sum_of_absolute_values_over_the_length():
    differences = np.random.default_rng(0).normal(size=(70, 900)) ** 3
    expected = np.abs(differences).sum(axis=1) / (30 * np.sqrt((differences**2).sum(axis=1)))
    np.testing.assert_allclose(evenness(differences), expected)


def test_evenness_of_normal_noise_is_the_root_of_two_over_pi():
    noise = np.random.default_rng(0).normal(size=(1, 100_000))
    assert float(evenness(noise)[0]) == pytest.approx(np.sqrt(2 / np.pi), abs=0.005)


def test_colluders_whose_models_are_the_same_share_one_vote_though_their_updates_differ():
    """They were sent different models, and what they add brings them to one place."""
    honest, reference = trained(14), torch.zeros(3000)
    models = torch.cat([honest, colluders(honest.mean(dim=0), 6, 0.1)])
    updates = models - trained(20, seed=5)
    view = view_of(updates, calibrated=Rows(models, reference), recovered=models, reference=reference)
    assert view.votes.tolist() == [1.0] * 14 + [pytest.approx(1 / 6)] * 6
    assert view_of(updates).votes.tolist() == [1.0] * 20


def test_wide_rows_are_compared_in_sampled_columns_that_depend_on_what_was_sent():
    honest = trained(8, width=20_000)
    rows = torch.cat([honest, colluders(honest.mean(dim=0), 3, 0.25)])
    view = view_of(rows)
    assert view.votes.tolist() == [1.0] * 8 + [pytest.approx(1 / 3)] * 3
    columns, again = view._sampled_columns(), view_of(rows.clone())._sampled_columns()
    assert len(columns) == 4096
    assert torch.equal(columns, again)
    assert not torch.equal(columns, view_of(2 * rows)._sampled_columns())


def test_noisy_colluders_are_removed_and_no_honest_client_is():
    result = fedcap.Experiment(
        dataset="digits", method={"name": "fedcap", "preset": "hardened"}, attack="noisy", rounds=4, workers=1
    ).run()
    assert (result.fnr, result.fpr) == (0, 0)
