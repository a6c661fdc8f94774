"""The round loop: seeds, clients, records, evaluation and hostile rows."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from helpers import without_times

import fedcap
from fedcap.methods import hardened
from fedcap.methods.fedavg import FedAvg
from fedcap.runs import RoundRecord
from fedcap.server.server import Server
from fedcap.server.uploads import Upload
from fedcap.simulation import Simulation, loop, make_pool
from fedcap.training import WorkerPool

ABLATION: dict[str, dict[str, Any]] = {
    "customised": {"calibrate": False, "detect": False, "personalise": False},
    "personal": {"customise": False, "calibrate": False, "detect": False},
    "customised + calibrated": {"personalise": False},
    "customised + personal": {"calibrate": False, "detect": False},
    "FedCAP": {},
}
"""The rows of Table IV, as options of FedCAP."""
SMALL = {"rounds": 3, "training": {"lr": 0.05, "epochs": 1}, "workers": 1}


def small(**settings: object) -> fedcap.Experiment:
    return fedcap.Experiment(**{**SMALL, **settings})


@pytest.fixture(scope="module")
def two_workers() -> Iterator[WorkerPool]:
    with make_pool(2) as pool:
        yield pool


# --- What the result depends on


@pytest.mark.parametrize("method", ["fedcap", "fedavg", "local"])
def test_a_result_depends_on_the_seed_and_not_on_workers_or_the_global_random_state(
    method: str, two_workers: WorkerPool
) -> None:
    experiment = small(method=method, attack="min-max", participation=0.6)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        before = torch.get_rng_state()
        alone = experiment.run()
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(2)
        together = experiment.run(pool=two_workers)
    assert without_times(alone) == without_times(together)
    assert [record.norms for record in alone.history] == [record.norms for record in together.history]
    assert without_times(small(**experiment.settings() | {"seed": 1}).run()) != without_times(alone)


def test_attackers_are_drawn_by_the_seed_or_as_named() -> None:
    clients = tuple(map(str, range(20)))
    drawn = {small(attack="ipm", seed=seed).attackers(clients) for seed in range(8)}
    assert all(len(attackers) == 6 for attackers in drawn)
    assert len(drawn) > 4
    assert small(attack={"name": "ipm", "clients": [1, "5", 9]}).attackers(clients) == {"1", "5", "9"}
    assert small().attackers(clients) == frozenset()
    users = tuple(f"u{k}" for k in range(36))
    assert len(fedcap.Experiment(attack="ipm").attackers(users)) == 10  # 0.3 of 36, rounded down


def test_the_digest_depends_on_all_settings_that_affect_the_result_and_on_no_other() -> None:
    mine = small(attack="ipm").digest()
    assert small(attack="ipm", checkpoint_every=3).digest() == mine
    assert fedcap.Experiment(**{**SMALL, "workers": 2}, attack="IPM").digest() == mine
    others = [
        small(attack="lie"),
        small(attack="ipm", seed=1),
        small(attack="ipm", training={"lr": 0.06, "epochs": 1}),
        small(attack="ipm", method={"name": "fedcap", "alpha": 4}),
        small(attack={"name": "ipm", "epsilon": 3}),
    ]
    assert len({mine, *(other.digest() for other in others)}) == 1 + len(others)
    for spellings in (
        [{"method": {"name": "fedavg", "rule": rule}} for rule in ("median", "Median", {"name": "median"})],
        [
            {"method": {"name": "fedcap", "detectors": names}}
            for names in ("norm", ["norm"], [{"name": "NORM"}], [{"name": "norm", "limit": 6.0}])
        ],
        [
            {"method": {"name": "fedavg", "policy": policy}}
            for policy in ("strikes", {"name": "strikes", "strikes": 1})
        ],
        [{"malicious": 0.1}, {"malicious": 0.2}],  # there is no attack
    ):
        assert len({small(**settings).digest() for settings in spellings}) == 1


@pytest.mark.parametrize("row", ABLATION)
def test_every_row_of_the_ablation_runs(row: str) -> None:
    result = small(method={"name": "fedcap", **ABLATION[row]}, attack="ipm", rounds=2).run()
    assert (result.history[-1].weights_entropy is None) == (row == "personal")


def test_personal_training_alone_is_the_same_as_fedavg_with_personal_models() -> None:
    ditto = small(method={"name": "fedcap", **ABLATION["personal"], "lambda_": 0.0}).run()
    assert ditto.tacc_shared == pytest.approx(small(method="fedavg").run().tacc_shared or 0, abs=0.2)


# --- Rounds


def test_removed_clients_are_neither_selected_nor_trained_again() -> None:
    result = small(rounds=5, attack={"name": "model-replacement", "scale": 200}, participation=0.7).run()
    assert result.removed
    for client, removal in result.removed.items():
        for record in result.history[removal.round :]:
            assert client not in record.participants
            assert client not in record.norms
        assert client in result.history[removal.round - 1].participants


def test_newcomers_are_asked_once_the_pools_are_filled_and_cost_bytes() -> None:
    simulation = Simulation(small(participation=0.5, eval_every=3), make_pool(1))
    records = [simulation.play() for _ in range(3)]
    assert records[0].asked == []
    for last, record in pairwise(records):
        assert record.asked == sorted(set(record.participants) - set(last.participants), key=int)
        assert len(record.participants) == 10
    for record in records:
        assert record.bytes == 4 * 13_706 * 2 * (10 + len(record.asked))


def test_clients_whose_training_fails_are_left_out() -> None:
    settings = {"participation": 0.5, "training": {"lr": 1e6, "epochs": 1}}
    result = small(**settings, method={"name": "fedcap", "detect": False}).run()
    assert result.diverged
    reasons = {reason for record in result.history for reason in record.refused.values()}
    assert "request not finite" in reasons or "not finite" in reasons


@pytest.mark.parametrize("workers", [1, 2])
def test_the_server_reads_the_matrix_that_the_workers_filled(
    workers: int, two_workers: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled, read = [], []
    train, view = loop.Clients.train, FedAvg.view

    def watched_train(*arguments: Any) -> Any:
        updates, results = train(*arguments)
        filled.append(updates.data_ptr())
        return updates, results

    def watched_view(*arguments: Any) -> Any:
        seen = view(*arguments)
        read.append(seen.updates.data_ptr())
        return seen

    monkeypatch.setattr(loop.Clients, "train", watched_train)
    monkeypatch.setattr(FedAvg, "view", watched_view)
    pool = make_pool(1) if workers == 1 else two_workers
    simulation = Simulation(small(method="fedavg", attack="ipm", participation=0.5), pool)
    simulation.play()
    simulation.play()
    assert len(filled) == 2
    assert read == filled


def test_a_run_whose_clients_are_all_removed_ends_with_an_evaluation() -> None:
    result = small(rounds=5, eval_every=3, method={"name": "fedcap", "t_norm": 1e-6}).run()
    assert result.rounds == 2
    assert len(result.removed) == 20
    assert result.history[-1].participants == []
    assert result.tacc_shared == result.tacc_personal
    assert result.history[-1].tallies is not None
    assert result.metrics is not None


def test_without_an_attack_the_server_assumes_no_malicious_client_by_default() -> None:
    def notes(**settings: object) -> list[str]:
        method = {"name": "fedavg", "rule": {"name": "bucketing", "rule": "median"}}
        return list(small(method=method, rounds=1, **settings).run().history[0].notes)

    assert notes() == []
    assert notes(assumed=0.3) == ["6 malicious of 20 rows assumed: Bucketing, given M = 6, tolerates 4"]
    assert notes(attack="lie") == notes(assumed=0.3)
    assert notes(attack="lie", assumed=0.1) == []


# --- Attacks and hostile rows


@pytest.mark.parametrize(
    "attack", [a for a in fedcap.attacks.names() if a not in ("label-flipping", "malformed")]
)
def test_every_attack_on_updates_is_measured(attack: str) -> None:
    for record in small(attack=attack, method="fedavg", rounds=2).run().history:
        assert record.attack is not None
        assert record.attack.length is not None
        assert record.attack.length > 0 or (attack, record.round) == (
            "poisoned-fl",
            1,
        )  # it sends zeros first
    if attack == "ipm":
        assert record.attack.cosine == pytest.approx(-1, abs=1e-4)


def test_label_flipping_poisons_the_attackers_training_labels_only() -> None:
    simulation = Simulation(small(attack="LF"), make_pool(1))
    assert len(simulation.malicious) == 6
    data = simulation.adversary.task_data(simulation.data, "cpu")
    for row, (client, true) in enumerate(zip(simulation.names, simulation.data.train, strict=True)):
        mine = data[row].train
        shift = 1 if client in simulation.malicious else 0
        assert torch.equal(mine.y, (true.y + shift) % 10)
        assert torch.equal(mine.x, true.x)


@pytest.mark.parametrize(
    ("form", "method", "reason"),
    [
        ("nan", "fedcap", None),
        ("infinity", "fedcap", None),
        ("huge", "fedcap", None),
        ("zero", "fedcap", ""),
        ("nan", "fedavg", "not finite"),
        ("infinity", "fedavg", "not finite"),
        *(
            (form, method, reason)
            for method in ("fedcap", "fedavg")
            for form, reason in (
                ("short", "shape [13705], not [13706]"),
                ("integer", "dtype int64, not floating point"),
                ("text", "not a tensor but str"),
            )
        ),
    ],
)
def test_malformed_updates_are_rejected_or_removed_and_the_run_goes_on(
    form: str, method: str, reason: str | None
) -> None:
    attack = {"name": "malformed", "form": form, "clients": [3, 7]}
    result = small(method=method, attack=attack, training={"lr": 0.2, "epochs": 4}).run()
    assert not result.diverged
    assert result.tacc > 20
    removed = {} if reason is not None else {"3": 1, "7": 1}
    assert {client: removal.round for client, removal in result.removed.items()} == removed
    for record in result.history:
        found = {client: why.removeprefix("request ") for client, why in record.refused.items()}
        assert removed or found == (dict.fromkeys("37", reason) if reason else {})
        assert RoundRecord.from_json(record.to_json()) == record


def test_a_claim_of_a_billion_samples_is_capped_recorded_and_does_not_defeat_the_defence() -> None:
    attack = {"name": "model-replacement", "scale": 100, "claim": 10**9}
    result = small(attack=attack).run()
    assert (result.fpr, result.fnr) == (0, 0)
    capped = set(result.history[0].bounded.values())
    assert capped == {"claims 1000000000 samples, counted as 88"}


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "fedavg", "attack": {"name": "ipm", "epsilon": 1e12}, "rounds": 8},
        {"training": {"lr": 1e6, "epochs": 1}},  # FedCAP removes all clients
        {"method": {"name": "fedcap", "lambda_": 1e6}},  # only the personal models diverge
    ],
    ids=str,
)
def test_a_diverged_run_is_marked_as_such(settings: dict[str, Any]) -> None:
    result = small(**settings).run()
    assert result.diverged
    assert json.loads(result.to_json())["diverged"] is True


def test_a_hardened_client_that_never_saw_a_finite_loss_has_not_diverged() -> None:
    simulation = Simulation(small(method={"name": "fedcap", "preset": "hardened"}, rounds=1), make_pool(1))
    server, layout = simulation.server, simulation.layout
    sent = torch.zeros(layout.size)
    sent[-10::2], sent[-9::2] = 3e38, -3e38  # the biases of the logits: finite, with losses that are not
    server._state = replace(server._state, model=sent)
    record = simulation.play()
    least = torch.cat([simulation.store.get(client)["least"] for client in simulation.names])
    assert bool((least == hardened.NO_LOSS).any())
    assert record.diverged == []


# --- Evaluation


def test_evaluation_is_optional_but_in_the_last_round_and_changes_nothing() -> None:
    often = small(participation=0.5, attack="lie", rounds=4).run()
    seldom = small(participation=0.5, attack="lie", rounds=4, eval_every=3).run()
    assert [record.accuracy is None for record in seldom.history] == [True, True, False, False]
    assert often.tacc == seldom.tacc
    assert often.history[-1].norms == seldom.history[-1].norms


def test_accuracy_counts_all_benign_clients_only() -> None:
    result = small(attack="lie", participation=0.3, rounds=2).run()
    accuracy = result.history[-1].accuracy
    assert accuracy is not None
    malicious = {client.id for client in result.clients if client.malicious}
    assert set(accuracy.clients) == set(map(str, range(20))) - malicious
    mean = sum(client.personal for client in accuracy.clients.values()) / len(accuracy.clients)
    assert result.tacc_personal == pytest.approx(mean)  # all clients have 24 test samples
    assert result.tacc == max(result.tacc_shared or 0, result.tacc_personal)


def test_clients_that_never_trained_are_tested_with_the_model_they_receive() -> None:
    simulation = Simulation(small(participation=0.1, rounds=1, method="fedavg"), make_pool(1))
    accuracy = simulation.play().accuracy
    assert accuracy is not None
    outside = set(simulation.names) - set(simulation.store)
    assert outside
    assert all(accuracy.clients[k].personal == accuracy.clients[k].shared for k in outside)
    accuracy = small(method="local", participation=0.1, rounds=1).run().history[-1].accuracy
    assert accuracy is not None
    assert sum(client.personal > 0 for client in accuracy.clients.values()) > 3


def test_local_shares_nothing_and_no_attack_reaches_it() -> None:
    attacked, quiet = (small(method="local", attack=attack).run() for attack in ("ipm", "none"))
    assert (attacked.tacc_shared, attacked.fpr, attacked.bytes_per_round) == (None, None, 0)
    for client in attacked.clients:
        if not client.malicious:
            assert client.personal == quiet.clients[int(client.id)].personal


def test_detection_is_scored_over_all_clients() -> None:
    def scores(**settings: object) -> tuple[object, ...]:
        result = small(rounds=2, **settings).run()
        return result.dacc, result.fpr, result.fnr, result.rounds_to_removal

    assert scores(attack={"name": "model-replacement", "scale": 1000}) == (100, 0, 0, 1)
    assert scores(attack="lie") == (70, 0, 100, None)
    assert scores()[2] is None
    assert scores(method="fedavg", attack="ipm") == (None,) * 4
    assert scores(method={"name": "fedcap", "detect": False}, attack="lie") == (None,) * 4


def test_clients_outside_a_round_are_tested_with_the_model_that_the_round_would_send_them() -> None:
    simulation = Simulation(small(participation=0.5), make_pool(1))
    simulation.play()
    twin = copy.deepcopy(simulation.server)
    record = simulation.play()
    outside = [client for client in simulation.names if client not in record.participants]
    twin.begin(record.participants)
    sent = twin.models_for(outside)
    pending = twin.clients.names(sent.pending)
    assert pending
    updates = simulation._clients.requests(pending, sent.start, 2)
    sent = twin.models_for(outside, [Upload(k, 2, row, 1) for k, row in zip(pending, updates, strict=True)])
    assert sent.rejected == {}
    sizes = dict(zip(simulation.names, map(len, simulation.data.test), strict=True))
    found = simulation._clients.test(outside, sent, twin.clients.names(sent.ids), 2, count=False)
    accuracy = record.accuracy
    assert accuracy is not None
    for client, result in found.items():
        assert result.received_correct is not None
        assert accuracy.clients[client].shared == pytest.approx(100 * result.received_correct / sizes[client])


@pytest.mark.parametrize("method", ["fedcap", "fedavg", {"name": "fedfomo", "models": 3}, "local"], ids=str)
def test_the_size_of_evaluation_blocks_changes_no_accuracy(
    method: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"method": method, "participation": 0.3, "attack": "lie"}
    whole = small(**settings).run()
    monkeypatch.setattr(loop, "EVALUATION_BLOCK", 3)
    in_blocks = small(**settings).run()
    for one, other in zip(in_blocks.history, whole.history, strict=True):
        assert replace(one, seconds=other.seconds, tallies=other.tallies) == other
    one, other = in_blocks.history[-1].tallies, whole.history[-1].tallies
    for ours, theirs in ((one.shared, other.shared), (one.personal, other.personal)):
        if theirs is not None:  # products of matrices of other shapes are rounded differently
            assert replace(ours, loss=theirs.loss) == theirs
            assert ours.loss == pytest.approx(theirs.loss, rel=1e-6)


def test_models_for_clients_outside_the_round_are_timed_as_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulation = Simulation(small(participation=0.5, method="fedavg"), make_pool(1))
    models_for = Server.models_for

    def slowly(*arguments: Any) -> Any:
        time.sleep(0.1)
        return models_for(*arguments)

    monkeypatch.setattr(Server, "models_for", slowly)
    seconds = simulation.play().seconds
    assert seconds.server >= 0.1  # for participants
    assert seconds.evaluate >= 0.1  # for the others
    assert seconds.total >= seconds.train + seconds.evaluate + seconds.attack + seconds.server
