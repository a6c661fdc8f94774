"""Searching for options: what is tried, and that the best is found, the smaller of equals."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcap.experiments.tuning import Options, OptunaSearch, Search, Trial, coordinate_search, grid_search

SPACE = {"alpha": [2.0, 5.0, 10.0], "phi": [0.1, 0.2, 0.3], "lambda_": [0.1, 0.5, 1.0]}


class Table:
    """Plays trials by looking scores up."""

    def __init__(self, score: Callable[[Options], float | None]) -> None:
        self._score = score
        self.trials: dict[tuple[Any, ...], Trial] = {}

    def __call__(self, choices: Sequence[Options]) -> list[Trial]:
        for options in choices:
            score = self._score(options)
            made = Trial(options, problem="failed") if score is None else Trial(options, [score])
            self.trials[tuple(options.values())] = made
        return [self.trials[tuple(options.values())] for options in choices]


def found(search: Search, score: Callable[[Options], float | None], space=SPACE) -> tuple[Options, Table]:
    table = Table(score)
    search(space, table)
    return min(table.trials.values(), key=lambda trial: trial.rank).options, table


def test_a_grid_is_every_combination():
    _, table = found(grid_search, lambda options: 0.0)
    assert set(table.trials) == set(itertools.product(*SPACE.values()))


@pytest.mark.parametrize("best", list(itertools.product(*SPACE.values()))[::4])
def test_both_searches_find_the_best_where_options_do_not_depend_on_each_other(best: tuple[float, ...]):
    def score(options: Options) -> float:
        places = (
            SPACE[name].index(value) - SPACE[name].index(there)
            for (name, value), there in zip(options.items(), best, strict=True)
        )
        return -sum(place**2 for place in places)

    for search in (grid_search, coordinate_search):
        chosen, table = found(search, score)
        assert tuple(chosen.values()) == best
        assert len(table.trials) <= (27 if search is grid_search else 14)


@pytest.mark.parametrize("search", [grid_search, coordinate_search])
def test_the_smaller_of_equals_is_chosen(search: Search):
    chosen, _ = found(search, lambda options: 90.0)
    assert chosen == {"alpha": 2.0, "phi": 0.1, "lambda_": 0.1}
    chosen, _ = found(search, lambda options: min(options["alpha"], 5.0))
    assert chosen == {"alpha": 5.0, "phi": 0.1, "lambda_": 0.1}


def test_numbers_come_before_words_among_equals():
    trials = [Trial({"limit": value}, [90.0]) for value in ("auto", 5.0, "none")]
    assert [t.options["limit"] for t in sorted(trials, key=lambda trial: trial.rank)] == [5.0, "auto", "none"]


def test_means_of_the_same_figures_are_equal_in_whatever_order_they_come():
    one, other = Trial({"alpha": 5.0}, [0.1, 0.2, 0.3]), Trial({"alpha": 2.0}, [0.3, 0.2, 0.1])
    assert min(one, other, key=lambda trial: trial.rank) is other


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 5) | st.none(), min_size=27, max_size=27))
def test_no_single_change_makes_what_coordinate_search_chose_better(scores: list[int | None]):
    table = dict(zip(itertools.product(*SPACE.values()), scores, strict=True))
    chosen, played = found(coordinate_search, lambda options: table[tuple(options.values())])
    here = played.trials[tuple(chosen.values())]
    for name, values in SPACE.items():
        for value in values:
            there = {**chosen, name: value}
            score = table[tuple(there.values())]
            assert here.problem or score is None or score <= here.score
    assert here.problem == "" or all(score is None for score in played_scores(played))


def played_scores(table: Table) -> list[float | None]:
    return [None if trial.problem else trial.score for trial in table.trials.values()]


def test_without_optuna_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with refused("needs-extra", "optuna"):
        OptunaSearch(3)(SPACE, Table(lambda options: 0.0))


def test_optuna_draws_within_the_range_and_the_same_each_time():
    pytest.importorskip("optuna", reason="Optuna is not installed: make test-extras runs this")
    space = {"alpha": [2.0, 10.0], "size": [1, 4], "rule": ["mean", "median"]}

    def score(options: Options) -> float | None:
        if options["size"] == 2:
            return None
        return -abs(options["alpha"] - 7) - (options["rule"] == "mean")

    chosen, first = found(OptunaSearch(40), score, space)
    _, again = found(OptunaSearch(40), score, space)
    assert list(first.trials) == list(again.trials)
    assert len(first.trials) > 20
    assert chosen["rule"] == "median"
    assert abs(chosen["alpha"] - 7) < 0.5
    for trial in first.trials.values():
        assert 2 <= trial.options["alpha"] <= 10
        assert trial.options["size"] in (1, 2, 3, 4)
