"""A component and its options written as one word, and read back."""

from __future__ import annotations

import pytest
from helpers import refused

from fedcap.registry import parse_word, spelling, split
from fedcap.simulation import Experiment


@pytest.mark.parametrize(
    ("word", "table"),
    [
        ("median", {"name": "median"}),
        ("bucketing(median)", {"name": "bucketing", "rule": "median"}),
        ("gas(multi-krum, chunks=100)", {"name": "gas", "rule": "multi-krum", "chunks": 100}),
        ("a.b:C(x=[1, 2], y=text, z=true)", {"name": "a.b:C", "x": [1, 2], "y": "text", "z": True}),
        ("krum()", {"name": "krum"}),
        ("photos (1)", {"name": "photos (1)"}),
        ("data(2).csv", {"name": "data(2).csv"}),
        ("<Mine from Python>", {"name": "<Mine from Python>"}),
        ("bucketing(median, krum)", {"name": "bucketing(median, krum)"}),
    ],
)
def test_a_word_is_a_table_of_name_and_options(word: str, table: dict[str, object]) -> None:
    assert parse_word(word) == table


@pytest.mark.parametrize(
    ("table", "word"),
    [
        (
            {"name": "bucketing", "size": 3, "rule": {"name": "gas", "rule": "krum"}},
            "bucketing(gas(krum), size=3)",
        ),
        ({"name": "lie"}, "lie"),
        ({"name": "fedcap", "alpha": 0.5, "detect": False}, "fedcap(alpha=0.5, detect=false)"),
        ([0.1, 2], "[0.1, 2]"),
        ("median", "median"),
    ],
)
def test_a_table_has_a_word(table: object, word: str) -> None:
    assert spelling(table) == word


def test_lists_are_split_outside_of_brackets_and_quotes() -> None:
    assert split("a, b(c, d),[1,2] , 'x,y',") == ["a", "b(c, d)", "[1,2]", "'x,y'"]


def test_words_are_understood_wherever_a_thing_is_named() -> None:
    word = Experiment(
        method={"name": "fedavg", "rule": "bucketing(gas(krum), size=3)"}, attack="ipm(epsilon=2)"
    )
    rule = {"name": "bucketing", "size": 3, "rule": {"name": "gas", "rule": "krum"}}
    table = Experiment(method={"name": "fedavg", "rule": rule}, attack={"name": "ipm", "epsilon": 2})
    assert word.digest() == table.digest()
    assert (
        Experiment(method="fedavg(median)").digest()
        == Experiment(method={"name": "fedavg", "rule": "median"}).digest()
    )


def test_a_mistake_in_a_word_gives_the_same_error_as_in_a_table() -> None:
    with refused("unknown-name"):
        Experiment(method="fedavg(bucketing(medain))")
    with refused("unknown-option"):
        Experiment(method="fedavg(bucketing(median, sise=2))")
