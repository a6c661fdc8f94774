"""The methods' options on each data set."""

from __future__ import annotations

import pytest

from fedcap import data, methods
from fedcap.simulation.settings import PRESETS, preset


@pytest.mark.parametrize(
    ("dataset", "alpha", "phi", "lambda_", "t_norm"),
    [
        ("digits", 5, 0.1, 1, 6),
        ("cifar10", 10, 0.3, 1, 10),
        ("emnist", 10, 0.1, 0.5, 10),
        ("handwritten62", 10, 0.1, 0.5, 10),
        ("wisdm", 2, 0.1, 0.1, 10),
    ],
)
def test_fedcap_has_options_for_every_data_set(
    dataset: str, alpha: float, phi: float, lambda_: float, t_norm: float
) -> None:
    expected = {"alpha": alpha, "phi": phi, "lambda_": lambda_, "t_norm": t_norm}
    assert preset(dataset, "fedcap") == expected


def test_every_preset_is_of_a_known_data_set_and_taken_by_its_method() -> None:
    for dataset, by_method in PRESETS.items():
        assert data.registry.resolve(dataset) == dataset
        for method, options in by_method.items():
            made = methods.make(method, **options)
            assert {key: getattr(made, key) for key in options} == options


def test_where_there_is_no_preset_nothing_is_suggested() -> None:
    assert preset("digits", "fedavg") == {}
    assert preset("npz", "fedcap") == {}


def test_changing_what_was_returned_changes_no_preset() -> None:
    preset("digits", "fedcap")["alpha"] = 99
    assert preset("digits", "fedcap")["alpha"] == 5
