"""Equations, attacks and rules take tensors, NumPy arrays and nested lists, and return the same tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers import refused

import fedcap
from fedcap.matrix import to_floats, to_tensor

ROWS = torch.randn(6, 9, generator=torch.Generator().manual_seed(3))
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
    same(rule(form(ROWS), form(counts), malicious=1), rule(ROWS, counts, malicious=1))


@forms
@pytest.mark.parametrize("name", fedcap.attacks.names())
def test_an_attack_takes_whatever_holds_numbers(name: str, form: Callable[[torch.Tensor], object]) -> None:
    attack = fedcap.attacks.make(name)
    expected = attack(ROWS, FLAGS)
    found = attack(form(ROWS), form(FLAGS))
    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))
    same(found[~FLAGS], ROWS[~FLAGS])


@forms
def test_the_equations_take_whatever_holds_numbers(form: Callable[[torch.Tensor], object]) -> None:
    own = torch.tensor([0, 1, 2, 3, 4, -1])
    expected = fedcap.customization_weights(ROWS, ROWS.clone(), own, alpha=10, phi=0.3)
    same(fedcap.customization_weights(form(ROWS), form(ROWS), form(own), alpha=10, phi=0.3), expected)
    same(fedcap.calibrate(form(ROWS), form(ROWS[0])), ROWS - ROWS[0])


def test_whole_numbers_are_taken_as_floats_and_doubles_stay_doubles() -> None:
    same(fedcap.aggregators.make("mean")([[1, 2], [3, 5]]), torch.tensor([2.0, 3.5]))
    same(fedcap.aggregators.make("median")(np.array([[1], [3], [8]])), torch.tensor([3.0]))
    doubles = fedcap.calibrate(np.array([[1.0, 2.0]]), [1, 1])
    same(doubles, torch.tensor([[0.0, 1.0]], dtype=torch.float64))
    mixed = fedcap.customization_weights([[1, 0]], np.eye(2), range(1), alpha=1, phi=0.5)
    same(mixed, torch.full((1, 2), 0.5, dtype=torch.float64))


def test_what_is_given_is_not_changed_and_not_shared() -> None:
    array = ROWS.numpy().copy()
    array.flags.writeable = False
    sent = fedcap.attacks.make("ipm")(array, FLAGS.tolist())
    sent.zero_()
    assert np.array_equal(array, ROWS.numpy())
    assert to_tensor(ROWS) is ROWS
    assert to_floats(FLAGS) is FLAGS


@pytest.mark.parametrize(
    "wrong", [[[1, 2], [3]], "rows", [["a"]], None, {"a": 1}, [torch.zeros(2), [1, 2, 3]]]
)
def test_values_that_are_not_numbers_are_errors_in_one_line(wrong: object) -> None:
    with refused("wrong-type"):
        fedcap.aggregators.make("median")(wrong)
