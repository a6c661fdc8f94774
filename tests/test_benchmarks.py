"""The benchmarks set their own threads, say how many, and can be compared between two trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from benchmarks import against, memory, rules, scale
from benchmarks.work import threads


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_rules_are_measured_with_one_thread_and_leave_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rules, "REPEATS", 2)
    seen = []
    took = rules.measure(
        {"ours": lambda x, m: seen.append(torch.get_num_threads()) or x}, rules.matrix(5, 8), 1
    )
    assert seen == [1, 1]
    assert took.keys() == {"ours"}
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_threads_are_as_before_even_after_an_error():
    def fail() -> None:
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), threads(1):
        fail()
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("name", rules.NUMPY)
def test_every_rule_is_compared_with_numpy(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rules, "REPEATS", 1)
    row = rules.compare(name, rules.matrix(10, 1200))
    assert (row["rule"], row["N"], row["D"]) == (name, 10, 1200)
    assert list(row)[3:6] == ["fedcap, ms", "NumPy, ms", "Flower, ms"]
    assert row["fedcap, ms"] > 0


@pytest.mark.slow
def test_a_player_of_this_tree_plays_on_request_and_ends_with_its_pipe():
    with against.Player(against.HERE) as player:
        (taken,) = against.in_turns([player], "server 4 50", turns=2)
        (again,) = against.in_turns([player], "server 3 20", turns=1)
    assert len(taken) == 2
    assert len(again) == 1
    assert min(taken + again) > 0
    assert player.process.returncode == 0


@pytest.mark.slow
def test_the_peak_memory_of_a_round_covers_its_matrices():
    few = memory.measure("fedcap", memory.HERE, clients=2)
    many = memory.measure("fedcap", memory.HERE, clients=200)
    assert many - few > 3 * 200 * memory.WEIGHTS * 4 / 2**30  # pool, models sent, client states


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedcap", "plain"])
def test_the_cost_of_registered_clients_is_measured(method: str, tmp_path: Path):
    row = scale.play({"method": method, "clients": 40, "part": 4, "rounds": 3}, tmp_path)
    assert all(row[name] > 0 for name in ("start-up s", "s a round", "whole run s"))
    assert (row["disk MB"] > 0) == (method == "fedcap")
    assert scale.memory(os.getpid()) > 0.05
