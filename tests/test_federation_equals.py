"""The federation computes what the simulation computes, round by round, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from federation_tools import IPM, NAMES, federation, simulation_of

import fedcap
from fedcap import methods
from fedcap.simulation import Simulation
from fedcap.training import make_pool, single_thread


def assert_same_state(conductor: Any, simulation: Simulation) -> None:
    found, expected = conductor.server.state_dict(), simulation.server.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


HARDENED = {"name": "fedcap", "preset": "hardened"}


@pytest.mark.parametrize("method", [*methods.names(), HARDENED], ids=str)
def test_every_method_gives_the_simulations_bits(tmp_path: Path, method: Any) -> None:
    made = federation(tmp_path, method, rounds=2)
    with make_pool(1) as pool, single_thread():
        simulation = Simulation(simulation_of(made.plan), pool)
        root = simulation.data.root
        with made.conductor(root=root) as conductor:
            for _ in range(2):
                record, expected = conductor.play(), simulation.play()
                assert_same_state(conductor, simulation)
                for client in NAMES:
                    kept = made.state(client).kept
                    assert kept.keys() == simulation.store.get(client).keys()
                    for name, tensor in simulation.store.get(client).items():
                        assert torch.equal(kept[name], tensor), (client, name)
                assert record.participants == expected.participants
                assert record.scores == expected.scores
                assert record.weights_entropy == expected.weights_entropy
                assert record.accuracy == expected.accuracy


def test_a_malicious_site_is_removed_and_the_other_models_are_the_simulations(tmp_path: Path) -> None:
    made = federation(tmp_path, {"name": "fedcap", "t_norm": 0.6}, rounds=4, assumed=0.2)
    made.transport.ipm = frozenset({"3"})
    attack = {**IPM, "clients": ["3"]}
    with make_pool(1) as pool, single_thread():
        simulation = Simulation(simulation_of(made.plan, attack=attack), pool)
        with made.conductor() as conductor:
            for number in range(1, 5):
                record, expected = conductor.play(), simulation.play()
                assert record.participants == expected.participants
                assert record.participants == list("01234" if number == 1 else "0124")
                assert record.removed == expected.removed
                assert_same_state(conductor, simulation)
    assert conductor.is_finished
    run = fedcap.read(made.run)
    assert {client: removal.round for client, removal in run.removed.items()} == {"3": 1}
    change = made.ledger.find("3").changes[-1]
    assert (change.state, change.round, change.by) == ("removed", 1, "server")
    assert change.reason == run.removed["3"].reason


def test_the_same_participants_and_newcomers_are_selected_as_in_the_simulation(tmp_path: Path) -> None:
    made = federation(tmp_path, rounds=3, participation=0.6)
    with make_pool(1) as pool, single_thread():
        simulation = Simulation(simulation_of(made.plan), pool)
        with made.conductor() as conductor:
            for _ in range(3):
                record, expected = conductor.play(), simulation.play()
                assert (record.participants, record.asked) == (expected.participants, expected.asked)
                assert_same_state(conductor, simulation)
    assert any(record.asked for record in conductor.history)
