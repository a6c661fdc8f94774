"""Operations on rows, against NumPy and SciPy on whole matrices, and the forms in which numbers are given."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers import refused
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import fedcap
from fedcap import matrix
from fedcap.matrix import Rows, weighted_median

WIDE = 3 * matrix.CACHED // 7 + 5
"""Columns of 7 rows that are more than three blocks."""


@pytest.fixture
def rows() -> torch.Tensor:
    return torch.randn(7, WIDE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("flags", ["0110101", "1111111", "0000000", "1000000", "0000001"])
def test_rows_move_up_within_their_matrix(rows: torch.Tensor, flags: str):
    mask = torch.tensor([flag == "1" for flag in flags])
    expected = rows[mask].clone()
    found = matrix.move_up(rows, mask)
    assert torch.equal(found, expected)
    assert found.untyped_storage().data_ptr() == rows.untyped_storage().data_ptr()


def test_products_of_rows_are_those_in_double_precision(rows: torch.Tensor):
    exact = rows.double().numpy()
    np.testing.assert_allclose(matrix.gram(rows).numpy(), exact @ exact.T, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(matrix.gram(rows, exact=False).numpy(), exact @ exact.T, rtol=1e-4, atol=1)


def test_products_of_rows_out_of_range_are_finite_in_double_precision():
    huge = torch.full((2, 3), 1e30)
    assert matrix.gram(huge).tolist() == [[pytest.approx(3e60)] * 2] * 2
    assert matrix.gram(huge, exact=False).isinf().all()


def test_distances_and_cosines_follow_from_products(rows: torch.Tensor):
    exact = rows.double().numpy()
    np.testing.assert_allclose(matrix.squared_distances(rows).numpy(), cdist(exact, exact) ** 2, rtol=1e-9)
    found = matrix.gram_to_cosines(matrix.gram(rows)).numpy()
    np.testing.assert_allclose(found, 1 - cdist(exact, exact, "cosine"), atol=1e-12)


def test_the_cosine_of_a_row_of_zeros_is_0_with_others_and_1_with_itself():
    products = matrix.gram(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    assert matrix.gram_to_cosines(products).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("scale", [1.0, 1e30])
def test_distances_to_a_point(rows: torch.Tensor, scale: float):
    point = rows.mean(dim=0)
    expected = np.linalg.norm((rows - point).double().numpy(), axis=1)
    found = matrix.distances_to(scale * rows, scale * point).numpy()
    np.testing.assert_allclose(found / scale, expected, rtol=1e-6)


def test_norms_and_chosen_columns_are_those_of_the_differences_from_the_origin(rows: torch.Tensor):
    chosen = torch.tensor([WIDE - 1, 0, 5])
    assert Rows(rows).columns(chosen).equal(rows[:, chosen])
    for origin in (rows[0], rows.flip(0)):
        shifted = Rows(rows, origin)
        expected = rows - origin
        np.testing.assert_allclose(shifted.norms(), expected.double().norm(dim=1), rtol=1e-6)
        assert shifted.columns(chosen).equal(expected[:, chosen])
        mask = torch.arange(7) > 4
        assert shifted.only(mask).block(slice(3, 9)).equal(expected[mask, 3:9])


@pytest.mark.parametrize("count", [1, 2, 3, 17, 32, 33])
def test_order_statistics_are_the_sorted_columns(count: int):
    block = torch.randn(count, 40, generator=torch.Generator().manual_seed(count)).round(decimals=1)
    np.testing.assert_array_equal(matrix.order_statistics(block), np.sort(block.numpy(), axis=0))


def test_means_of_rows_are_those_of_numpy(rows: torch.Tensor):
    weights = torch.tensor([1.0, 0, 2, 5, 1, 1, 3])
    expected = np.average(rows.double().numpy(), axis=0, weights=weights.numpy())
    np.testing.assert_allclose(matrix.weighted_mean(rows, weights), expected, rtol=1e-4, atol=1e-6)
    chosen = torch.tensor([0, 3, 6])
    expected = rows.double().numpy()[[0, 3, 6]].mean(axis=0)
    np.testing.assert_allclose(matrix.mean_of(rows, chosen), expected, rtol=1e-4, atol=1e-6)


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 4)), min_size=1, max_size=9))
def test_the_weighted_median_is_the_median_of_repeated_values(pairs: list[tuple[int, int]]):
    values, counts = (torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))
    repeated = np.repeat(values.numpy(), counts.numpy().astype(int))
    assert float(weighted_median(values, counts)) == np.median(repeated)


# --- Forms of numbers

SIX = torch.randn(6, 9, generator=torch.Generator().manual_seed(3))
FLAGS = torch.tensor([True, False, False, True, False, False])
FORMS: dict[str, Callable[[torch.Tensor], object]] = {
    "array": lambda tensor: tensor.numpy(),
    "reversed view": lambda tensor: np.ascontiguousarray(tensor.numpy()[::-1])[::-1],
    "lists": lambda tensor: tensor.tolist(),
    "tuple of tensors": lambda tensor: tuple(tensor),
    "list of arrays": lambda tensor: list(tensor.numpy()),
}

forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def same(found: object, expected: torch.Tensor) -> None:
    assert isinstance(found, torch.Tensor)
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


@forms
@pytest.mark.parametrize("name", fedcap.aggregators.names())
def test_a_rule_takes_whatever_holds_numbers(name: str, form: Callable[[torch.Tensor], object]) -> None:
    rule, counts = fedcap.aggregators.make(name), torch.arange(1.0, 7.0)
    same(rule(form(SIX), form(counts), malicious=1), rule(SIX, counts, malicious=1))


@forms
@pytest.mark.parametrize("name", fedcap.attacks.names())
def test_an_attack_takes_whatever_holds_numbers(name: str, form: Callable[[torch.Tensor], object]) -> None:
    attack = fedcap.attacks.make(name)
    expected = attack(SIX, FLAGS)
    found = attack(form(SIX), form(FLAGS))
    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))
    same(found[~FLAGS], SIX[~FLAGS])


@forms
def test_the_equations_take_whatever_holds_numbers(form: Callable[[torch.Tensor], object]) -> None:
    own = torch.tensor([0, 1, 2, 3, 4, -1])
    expected = fedcap.customization_weights(SIX, SIX.clone(), own, alpha=10, phi=0.3)
    same(fedcap.customization_weights(form(SIX), form(SIX), form(own), alpha=10, phi=0.3), expected)
    same(fedcap.calibrate(form(SIX), form(SIX[0])), SIX - SIX[0])


def test_whole_numbers_are_taken_as_floats_and_doubles_stay_doubles() -> None:
    same(fedcap.aggregators.make("mean")([[1, 2], [3, 5]]), torch.tensor([2.0, 3.5]))
    same(fedcap.aggregators.make("median")(np.array([[1], [3], [8]])), torch.tensor([3.0]))
    doubles = fedcap.calibrate(np.array([[1.0, 2.0]]), [1, 1])
    same(doubles, torch.tensor([[0.0, 1.0]], dtype=torch.float64))
    mixed = fedcap.customization_weights([[1, 0]], np.eye(2), range(1), alpha=1, phi=0.5)
    same(mixed, torch.full((1, 2), 0.5, dtype=torch.float64))


def test_what_is_given_is_not_changed_and_not_shared() -> None:
    array = SIX.numpy().copy()
    array.flags.writeable = False
    sent = fedcap.attacks.make("ipm")(array, FLAGS.tolist())
    sent.zero_()
    assert np.array_equal(array, SIX.numpy())
    assert matrix.to_tensor(SIX) is SIX
    assert matrix.to_floats(FLAGS) is FLAGS


@pytest.mark.parametrize(
    "wrong", [[[1, 2], [3]], "rows", [["a"]], None, {"a": 1}, [torch.zeros(2), [1, 2, 3]]]
)
def test_values_that_are_not_numbers_are_errors_in_one_line(wrong: object) -> None:
    with refused("wrong-type"):
        fedcap.aggregators.make("median")(wrong)
