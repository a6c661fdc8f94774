"""What an attacker sees of a round, what it remembers, and what its clients train on."""

from __future__ import annotations

import attack_tools
import numpy as np
import pytest
import torch
from helpers import CountingName, refused, without_times
from torch import Tensor

import fedcap
from fedcap import methods
from fedcap.attacks import View
from fedcap.server.server import Server
from fedcap.server.uploads import Upload
from fedcap.simulation import Simulation, adversary, make_pool
from fedcap.training import Layout

QUICK = {"rounds": 3, "participation": 0.6, "training": {"lr": 0.05, "epochs": 1}, "workers": 1}


@pytest.fixture
def seen() -> list[View]:
    attack_tools.SEEN.clear()
    return attack_tools.SEEN


def test_an_attacker_sees_the_received_models_the_server_and_its_limits(seen: list[View]) -> None:
    simulation = Simulation(fedcap.Experiment(attack="attack_tools:Recording", **QUICK), make_pool(1))
    for number in (1, 2, 3):
        seen.clear()
        held = simulation.server.inspect()
        start = simulation.server.models_for(simulation.names).start
        record = simulation.play()
        held_clients = simulation.server.clients.names(held.ids)
        *asked, view = seen
        assert [view.round, view.request] == [number, False]
        assert list(view.clients) == record.participants
        assert torch.equal(view.server.reference, held.global_model)
        assert list(view.server.clients) == held_clients
        assert torch.equal(view.server.models, held.models)
        assert view.server.limits == {"norm": 6}
        assert [k for k, bad in zip(view.clients, view.malicious, strict=True) if bad] == [
            k for k in record.participants if k in simulation.malicious
        ]
        if number == 1:
            assert torch.equal(view.received(3)[0], held.global_model)
        for requests in asked:
            assert requests.request
            assert set(requests.clients) <= set(record.asked)
            assert torch.equal(requests.received(0)[0], start)


def test_what_each_was_sent_is_what_it_trained_from(seen: list[View]) -> None:
    simulation = Simulation(
        fedcap.Experiment(attack="attack_tools:Recording", method="fedfomo", **QUICK), make_pool(1)
    )
    simulation.play()
    simulation.play()
    view = seen[-1]
    pool = dict(zip(*simulation_pool(view), strict=True))
    for row, client in enumerate(view.clients):
        sent = view.received(row)
        assert len(sent) > 1
        others = [model for name, model in pool.items() if name != client]
        assert all(any(torch.equal(model, other) for other in others) for model in sent)


def simulation_pool(view: View) -> tuple[tuple[str, ...], Tensor]:
    return view.server.clients, view.server.models


def test_no_attack_can_write_into_the_server() -> None:
    settings = {**QUICK, "method": "fedavg", "attack": "attack_tools:Writing"}
    quiet = {**settings, "attack": "attack_tools:Recording"}
    assert without_times(fedcap.Experiment(**settings).run()) == without_times(
        fedcap.Experiment(**quiet).run()
    )


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("method", ["fedcap", "fedavg", "fedfomo"])
def test_previews_change_neither_the_matrix_of_updates_nor_the_server(method: str, short: bool) -> None:
    def result(previews: int) -> object:
        attack = attack_tools.Previewing(previews=previews, short=short)
        simulation = Simulation(fedcap.Experiment(method=method, attack=attack, **QUICK), make_pool(1))
        attack_tools.SERVERS[:] = [simulation.server]
        while not simulation.is_finished:
            record = simulation.play()
            rejected = set(record.refused) & simulation.malicious
            asked = {*record.participants, *record.asked}
            assert rejected == (simulation.malicious & asked if short else set())
        return without_times(simulation.result())

    assert result(previews=3) == result(previews=0)


def test_a_view_of_updates_alone_has_no_received_models() -> None:
    view = View(torch.ones(2, 3), torch.tensor([True, False]))
    with refused("no-models"):
        view.received(0)
    assert view.server.reference is None
    assert torch.equal(view.benign, torch.ones(1, 3))


def test_an_attack_remembers_over_rounds() -> None:
    settings = {**QUICK, "attack": "attack_tools:Counting", "method": "fedavg", "participation": 1.0}
    history = fedcap.Experiment(**settings).run().history
    lengths = [record.attack.length for record in history]
    assert lengths[1] > 1.3 * lengths[0]


def test_an_attack_on_data_sees_inputs_as_well_as_labels() -> None:
    simulation = Simulation(fedcap.Experiment(attack="attack_tools:Inputs", **QUICK), make_pool(1))
    data = simulation.adversary.task_data(simulation.data, "cpu")
    for row, (client, true) in enumerate(zip(simulation.names, simulation.data.train, strict=True)):
        mine, again = (data[row].train for _ in range(2))
        assert torch.equal(mine.y, true.y)
        assert torch.equal(mine.x, again.x)
        assert torch.equal(mine.x, true.x) == (client not in simulation.malicious)


def test_options_reproduce_byzfls_alie_and_sign_flipping() -> None:
    rng = np.random.default_rng(1)
    updates, malicious = rng.normal(size=(9, 6)), np.arange(9) >= 6
    honest = updates[~malicious]
    alie = honest.mean(axis=0) + 1.5 * honest.std(axis=0, ddof=1)
    rows, flags = torch.from_numpy(updates), torch.from_numpy(malicious)
    found = fedcap.attacks.make("lie", z=-1.5, over="benign", correction=1)(rows, flags)
    np.testing.assert_allclose(found[6:].numpy(), np.tile(alie, (3, 1)), rtol=1e-12)
    flipped = fedcap.attacks.make("ipm", epsilon=1)(rows, flags)
    np.testing.assert_allclose(flipped[6:].numpy(), np.tile(-honest.mean(axis=0), (3, 1)), rtol=1e-12)
    assert not np.allclose(fedcap.attacks.make("lie", z=-1.5)(rows, flags)[6:].numpy(), alie)


def test_every_attack_may_claim_samples_it_does_not_have() -> None:
    for name in fedcap.attacks.names():
        assert fedcap.attacks.make(name, claim=7).claim == 7
    with refused("bad-value"):
        fedcap.attacks.make("ipm", claim=0)


def test_the_time_of_a_preview_is_proportional_to_the_number_of_clients() -> None:
    layout = Layout.of(torch.nn.Linear(1, 1))
    names = [f"client {k}" for k in range(1000)]
    server = Server(methods.make("fedavg"), torch.zeros(2), layout, clients=names)
    server.begin(names)
    updates = torch.ones(1000, 2)
    uploads = [Upload(name, 1, row, 5) for name, row in zip(names, updates, strict=True)]
    CountingName.compared = 0
    found = adversary._preview(server, [CountingName(name) for name in names], uploads, None, updates)
    assert found.served.all()
    torch.testing.assert_close(found.models, updates)
    assert CountingName.compared < 5000
