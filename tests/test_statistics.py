"""Intervals and p-values against SciPy, against tables and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedcap.report.statistics import half_width, holm, sign_flip_p

FIVE = [93.1, 94.4, 92.7, 95.0, 93.9]


def test_the_interval_of_a_mean_is_students() -> None:
    low, high = stats.t.interval(0.95, df=4, loc=np.mean(FIVE), scale=stats.sem(FIVE))
    assert half_width(FIVE) == pytest.approx((high - low) / 2, rel=1e-12)
    # Mean 2, deviation 1, and 4.303 from any table of Student's t with two degrees of freedom.
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert half_width([0.1] * 3) == 0.0


def test_fewer_than_three_values_have_no_interval() -> None:
    assert half_width([]) is None
    assert half_width([91.3]) is None
    assert half_width([61.1, 77.7]) is None


@pytest.mark.parametrize(
    "differences",
    [[1.2, 0.4, 2.0, -0.1, 0.7], [3.0, 3.0, 3.0], [-1.0, 1.0], [0.0, 0.0, 2.5, 1.5], [0.1, 0.2, -0.3, 0.6]],
)
def test_the_sign_flip_test_counts_all_signs(differences: list[float]) -> None:
    signs = np.stack(np.meshgrid(*[[1, -1]] * len(differences))).reshape(len(differences), -1)
    sums = np.abs(np.array(differences) @ signs)
    expected = np.mean(sums >= abs(sum(differences)) - 1e-9)
    assert sign_flip_p(differences) == pytest.approx(expected, abs=1e-12)


def test_five_seeds_in_agreement_give_two_of_32_and_no_less() -> None:
    assert sign_flip_p([1.0, 2.0, 3.0, 4.0, 5.0]) == 2 / 32
    assert sign_flip_p([4.0]) == 1.0
    assert sign_flip_p([0.0] * 4) == 1.0


def test_the_p_value_of_many_differences_is_drawn_and_near_the_exact_one() -> None:
    differences = [0.4] * 13 + [-0.4] * 7
    # Each sign is that of a coin: 13 heads or more, or 7 or fewer, of 20.
    assert sign_flip_p(differences) == pytest.approx(stats.binomtest(13, 20).pvalue, abs=0.01)
    assert sign_flip_p(differences) == sign_flip_p(differences)


def test_holm_multiplies_the_smallest_by_all_the_next_by_one_less() -> None:
    # Sorted: .01·4 = .04, .02·3 = .06, .03·2 = .06, .2·1 = .2.
    assert holm([0.03, 0.01, 0.2, 0.02]) == pytest.approx([0.06, 0.04, 0.2, 0.06])
    # .01·3 = .03, .04·2 = .08, and .05·1 = .05 must not fall below .08.
    assert holm([0.05, 0.01, 0.04]) == pytest.approx([0.08, 0.03, 0.08])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []
