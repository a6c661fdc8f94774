"""Intervals, paired differences and p-values, against SciPy, against tables and by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from fedcap.experiments.statistics import (
    bootstrap_interval,
    caught,
    holm,
    separation,
    sign_flip_p,
    smallest_p,
)
from fedcap.report.tables import half_width

FIVE = [93.1, 94.4, 92.7, 95.0, 93.9]
FIGURES = st.floats(-100, 100, allow_subnormal=False)


def test_the_interval_of_a_mean_is_students() -> None:
    low, high = stats.t.interval(0.95, df=4, loc=np.mean(FIVE), scale=stats.sem(FIVE))
    assert half_width(FIVE) == pytest.approx((high - low) / 2, rel=1e-12)
    # Mean 2, deviation 1, and 4.303 from any table of Student's t with two degrees of freedom.
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.302653 / 3**0.5, rel=1e-6)


def test_one_figure_has_no_interval_and_equal_figures_have_one_without_width() -> None:
    assert half_width([91.3]) is None
    assert bootstrap_interval([91.3]) is None
    assert half_width([0.1] * 3) == 0.0
    assert bootstrap_interval([0.1] * 7) == (0.1, 0.1)
    assert bootstrap_interval([0.1] * 30) == (0.1, 0.1)


def test_a_bootstrap_of_few_figures_counts_every_resample() -> None:
    for values in ([1.0, 5.0], [0.3, -1.2, 2.2], FIVE):
        means = [np.mean(sample) for sample in itertools.product(values, repeat=len(values))]
        assert len(means) == len(values) ** len(values)
        low = np.quantile(means, 0.025, method="inverted_cdf")
        high = -np.quantile(np.negative(means), 0.025, method="inverted_cdf")
        assert bootstrap_interval(values) == pytest.approx((low, high))


def test_a_bootstrap_of_many_figures_agrees_with_scipy() -> None:
    values = list(np.random.default_rng(7).gamma(2.0, size=40))
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=50_000, rng=1)
    assert bootstrap_interval(values) == pytest.approx(tuple(theirs.confidence_interval), abs=0.02)
    assert bootstrap_interval(values) == bootstrap_interval(values)


@given(st.lists(FIGURES, min_size=2, max_size=6))
def test_an_interval_of_opposite_differences_is_the_opposite_interval(values: list[float]) -> None:
    found, other = bootstrap_interval(values), bootstrap_interval([-value for value in values])
    assert found is not None
    assert other is not None
    assert found == pytest.approx((-other[1], -other[0]))
    assert min(values) - 1e-9 <= found[0] <= found[1] <= max(values) + 1e-9


@pytest.mark.parametrize(
    "differences",
    [[1.2, 0.4, 2.0, -0.1, 0.7], [3.0, 3.0, 3.0], [-1.0, 1.0], [0.0, 0.0, 2.5, 1.5], [0.1, 0.2, -0.3, 0.6]],
)
def test_the_p_value_is_that_of_scipys_exact_test(differences: list[float]) -> None:
    theirs = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert sign_flip_p(differences) == theirs.pvalue


def test_five_seeds_in_agreement_give_two_of_32_and_no_less() -> None:
    assert sign_flip_p([1.0, 2.0, 3.0, 4.0, 5.0]) == 2 / 32 == smallest_p(5)
    assert sign_flip_p([4.0]) == 1.0 == smallest_p(1)
    assert sign_flip_p([0.0] * 4) == 1.0


def test_the_p_value_of_many_differences_is_drawn_and_near_the_exact_one() -> None:
    differences = [0.4] * 13 + [-0.4] * 7
    # The sum's sign is a coin's: 13 heads or more, or 7 or fewer, of 20.
    assert sign_flip_p(differences) == pytest.approx(stats.binomtest(13, 20).pvalue, abs=0.01)
    assert sign_flip_p([1.0] * 40) == smallest_p(40) == 1 / 20_001


def test_holm_multiplies_the_smallest_by_all_the_next_by_one_less() -> None:
    # Sorted: .01·4 = .04, .02·3 = .06, .03·2 = .06, .2·1 = .2.
    assert holm([0.03, 0.01, 0.2, 0.02]) == pytest.approx([0.06, 0.04, 0.2, 0.06])
    # .01·3 = .03, .04·2 = .08, and .05·1 = .05 must not fall below .08.
    assert holm([0.05, 0.01, 0.04]) == pytest.approx([0.08, 0.03, 0.08])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


# --- Scores of two kinds


def test_separation_is_the_area_under_scikit_learns_roc_curve():
    rng = np.random.default_rng(4)
    lower, higher = rng.integers(0, 9, 40).astype(float), rng.integers(3, 12, 25).astype(float)
    labels, scores = [0] * 40 + [1] * 25, np.concatenate([lower, higher])
    assert separation(list(lower), list(higher)) == pytest.approx(metrics.roc_auc_score(labels, scores))
    assert separation([], [1.0]) is None
    assert separation([1.0], []) is None


def test_caught_is_the_height_of_scikit_learns_roc_curve():
    rng = np.random.default_rng(5)
    lower, higher = rng.normal(size=20), rng.normal(1, 1, size=15)
    below, found, _ = metrics.roc_curve([0] * 20 + [1] * 15, np.concatenate([lower, higher]))
    for share in (0.0, 0.1, 0.35, 1.0):
        expected = max(height for at, height in zip(below, found, strict=True) if at <= share + 1e-9)
        assert caught(list(lower), list(higher), share) == pytest.approx(expected)
    assert caught([1.0, 2.0], [2.0, 3.0], 0.0) == 0.5  # a tie is not above the limit
    assert caught([], [1.0], 0.5) is None
