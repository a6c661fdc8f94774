"""The round loop: seeds, clients, records, evaluation and hostile rows."""

from __future__ import annotations

import copy
import json
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from helpers import without_times

import fedcap
from fedcap.methods import hardened
from fedcap.methods.fedavg import FedAvg
from fedcap.runs import Result, RoundRecord
from fedcap.server.server import Server
from fedcap.server.uploads import Upload
from fedcap.simulation import Simulation, loop, make_pool

ABLATION: dict[str, dict[str, Any]] = {
    "customised": {"calibrate": False, "detect": False, "personalise": False},
    "personal": {"customise": False, "calibrate": False, "detect": False},
    "customised + calibrated": {"personalise": False},
    "customised + personal": {"calibrate": False, "detect": False},
    "FedCAP": {},
}
"""The rows of Table IV, as options of FedCAP."""
SMALL = {"rounds": 4, "training": {"lr": 0.05, "epochs": 1}, "workers": 1}


def small(**settings: object) -> fedcap.Experiment:
    return fedcap.Experiment(**{**SMALL, **settings})


def malformed(form: str, method: str = "fedcap") -> Result:
    """Run with two clients whose updates are malformed."""
    attack = {"name": "malformed", "form": form, "clients": [3, 7]}
    return small(method=method, attack=attack, training={"lr": 0.2, "epochs": 4}).run()


@pytest.mark.parametrize("method", ["fedcap", "fedavg", "local"])
def test_same_seed_gives_the_same_result_and_another_seed_another(method: str) -> None:
    first, second = (small(method=method, attack="ipm").run() for _ in range(2))
    assert without_times(first) == without_times(second)
    assert without_times(small(method=method, attack="ipm", seed=1).run()) != without_times(first)


def test_result_does_not_depend_on_the_number_of_workers() -> None:
    experiment = small(attack="min-max", participation=0.6)
    alone = experiment.run()
    with make_pool(2) as pool:
        together = experiment.run(pool=pool)
    assert without_times(alone) == without_times(together)
    for one, two in zip(alone.history, together.history, strict=True):
        assert one.norms == two.norms


def test_global_random_state_is_neither_used_nor_changed() -> None:
    torch.manual_seed(1)
    first = small().run()
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), after)
    torch.manual_seed(2)
    assert without_times(small().run()) == without_times(first)


def test_attackers_are_drawn_by_the_seed_or_as_named() -> None:
    clients = tuple(map(str, range(20)))
    drawn = {small(attack="ipm", seed=seed).attackers(clients) for seed in range(8)}
    assert all(len(attackers) == 6 for attackers in drawn)
    assert len(drawn) > 4
    assert small(attack={"name": "ipm", "clients": [1, "5", 9]}).attackers(clients) == {"1", "5", "9"}
    assert small().attackers(clients) == frozenset()
    users = tuple(f"u{k}" for k in range(36))
    assert len(fedcap.Experiment(attack="ipm").attackers(users)) == 10  # 0.3 of 36, rounded down


def test_removed_clients_are_neither_selected_nor_trained_again() -> None:
    result = small(rounds=6, attack={"name": "model-replacement", "scale": 200}, participation=0.7).run()
    assert result.removed
    for client, removal in result.removed.items():
        for record in result.history[removal.round :]:
            assert client not in record.participants
            assert client not in record.norms
        assert client in result.history[removal.round - 1].participants


def test_newcomers_are_asked_once_the_pools_are_filled() -> None:
    history = small(participation=0.5, rounds=5, eval_every=5).run().history
    assert history[0].asked == []
    for last, record in pairwise(history):
        assert record.asked == sorted(set(record.participants) - set(last.participants), key=int)
        assert len(record.participants) == 10


def test_requests_cost_bytes_and_models_are_counted_both_ways() -> None:
    simulation = Simulation(small(participation=0.5), make_pool(1))
    record = simulation.play()
    assert record.bytes == 4 * 13_706 * 2 * 10
    record = simulation.play()
    assert record.bytes == 4 * 13_706 * 2 * (10 + len(record.asked))
    assert small(method="local").run().bytes_per_round == 0


def test_evaluation_is_optional_but_in_the_last_round_and_changes_nothing() -> None:
    often = small(participation=0.5, attack="lie").run()
    seldom = small(participation=0.5, attack="lie", eval_every=3).run()
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
    trained = set(simulation.store)
    outside = [k for k in simulation.names if k not in trained]
    assert outside
    assert all(accuracy.clients[k].personal == accuracy.clients[k].shared for k in outside)


def test_local_shares_nothing_and_no_attack_reaches_it() -> None:
    attacked, quiet = (small(method="local", attack=attack).run() for attack in ("ipm", "none"))
    assert attacked.tacc_shared is None
    assert attacked.fpr is None
    for client in attacked.clients:
        if not client.malicious:
            assert client.personal == quiet.clients[int(client.id)].personal


@pytest.mark.parametrize(
    "attack", [a for a in fedcap.attacks.names() if a not in ("label-flipping", "malformed")]
)
def test_every_attack_on_updates_is_measured(attack: str) -> None:
    for record in small(attack=attack, method="fedavg", rounds=2).run().history:
        assert record.attack is not None
        assert record.attack.length is not None
        assert record.attack.length > 0
    expected = {"ipm": -1.0, "sign-flipping": None}.get(attack)
    if expected is not None:
        assert record.attack.cosine == pytest.approx(expected, abs=1e-4)


def test_label_flipping_poisons_the_attackers_training_labels_only() -> None:
    simulation = Simulation(small(attack="LF"), make_pool(1))
    assert len(simulation.malicious) == 6
    data = simulation.adversary.task_data(simulation.data, "cpu")
    for row, (client, true) in enumerate(zip(simulation.names, simulation.data.train, strict=True)):
        mine = data[row].train
        shift = 1 if client in simulation.malicious else 0
        assert torch.equal(mine.y, (true.y + shift) % 10)
        assert torch.equal(mine.x, true.x)


@pytest.mark.parametrize("form", ["nan", "infinity", "huge"])
def test_fedcap_removes_rows_that_are_not_numbers_or_absurd_and_goes_on(form: str) -> None:
    result = malformed(form)
    assert {client: removal.round for client, removal in result.removed.items()} == {"3": 1, "7": 1}
    assert not result.diverged
    assert result.tacc > 30
    for record in result.history:
        assert RoundRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize("form", ["nan", "infinity"])
def test_fedavg_refuses_rows_that_are_not_numbers_and_goes_on(form: str) -> None:
    result = malformed(form, "fedavg")
    for record in result.history:
        assert record.refused == {"3": "not finite", "7": "not finite"}
        assert RoundRecord.from_json(record.to_json()) == record
    assert not result.diverged


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("short", "shape [13705], not [13706]"),
        ("integer", "dtype int64, not floating point"),
        ("text", "not a tensor but str"),
    ],
)
@pytest.mark.parametrize("method", ["fedcap", "fedavg"])
def test_malformed_updates_are_rejected_and_recorded(form: str, reason: str, method: str) -> None:
    result = malformed(form, method)
    for record in result.history:
        assert {k: why.removeprefix("request ") for k, why in record.refused.items()} == {
            "3": reason,
            "7": reason,
        }
    assert not result.diverged
    assert result.tacc > 30


def test_rows_of_zeros_are_no_reason_for_removal() -> None:
    result = malformed("zero")
    assert not result.removed
    assert result.tacc > 30


def test_huge_claims_do_not_defeat_the_defence() -> None:
    attack = {"name": "model-replacement", "scale": 100, "claim": 10**9}
    result = small(attack=attack).run()
    assert (result.fpr, result.fnr) == (0, 0)


def test_a_claim_of_a_billion_samples_is_capped_and_recorded() -> None:
    result = small(attack={"name": "lie", "claim": 10**9, "clients": [2]}).run()
    assert result.history[0].bounded == {"2": "claims 1000000000 samples, counted as 88"}


def test_a_diverged_run_is_marked_as_such() -> None:
    result = small(method="fedavg", attack={"name": "ipm", "epsilon": 1e12}, rounds=8).run()
    assert result.diverged
    assert json.loads(result.to_json())["diverged"] is True


def test_divergence_is_not_hidden_by_removal_or_by_a_sound_shared_model() -> None:
    assert small(training={"lr": 1e6, "epochs": 1}).run().diverged  # FedCAP removes all of them
    assert small(method={"name": "fedcap", "lambda_": 1e6}).run().diverged  # only the personal models


def test_without_detection_nothing_is_scored() -> None:
    result = small(method={"name": "fedcap", "detect": False}, attack="lie", rounds=1).run()
    assert (result.dacc, result.fpr, result.fnr) == (None, None, None)


def test_local_clients_that_have_not_trained_are_tested_with_the_common_start() -> None:
    accuracy = small(method="local", participation=0.1, rounds=1).run().history[-1].accuracy
    assert accuracy is not None
    assert sum(client.personal > 0 for client in accuracy.clients.values()) > 3


def test_detection_is_scored_over_all_clients() -> None:
    result = small(rounds=3, attack={"name": "model-replacement", "scale": 1000}).run()
    assert (result.dacc, result.fpr, result.fnr) == (100, 0, 0)
    assert result.rounds_to_removal == 1
    missed = small(rounds=2, attack="lie").run()
    assert (missed.dacc, missed.fpr, missed.fnr) == (70, 0, 100)
    assert missed.rounds_to_removal is None
    assert small(rounds=2).run().fnr is None
    assert small(rounds=2, method="fedavg", attack="ipm").run().dacc is None


def test_a_run_whose_clients_are_all_removed_ends_with_an_evaluation() -> None:
    result = small(rounds=5, eval_every=3, method={"name": "fedcap", "t_norm": 1e-6}).run()
    assert result.rounds == 2
    assert len(result.removed) == 20
    assert result.history[-1].participants == []
    assert result.tacc_shared == result.tacc_personal
    assert result.history[-1].tallies is not None
    assert result.metrics is not None


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


@pytest.mark.parametrize("row", ABLATION)
def test_every_row_of_the_ablation_runs(row: str) -> None:
    result = small(method={"name": "fedcap", **ABLATION[row]}, attack="ipm").run()
    assert (result.history[-1].weights_entropy is None) == (row == "personal")


def test_personal_training_alone_is_the_same_as_fedavg_with_personal_models() -> None:
    options = ABLATION["personal"]
    ditto = small(method={"name": "fedcap", **options, "lambda_": 0.0}).run()
    assert ditto.tacc_shared == pytest.approx(small(method="fedavg").run().tacc_shared or 0, abs=0.2)


def test_a_benign_newcomer_without_a_valid_request_is_left_out() -> None:
    settings = {"participation": 0.5, "training": {"lr": 1e6, "epochs": 1}}
    result = small(**settings, method={"name": "fedcap", "detect": False}).run()
    assert result.diverged
    reasons = {reason for record in result.history for reason in record.refused.values()}
    assert "request not finite" in reasons or "not finite" in reasons


def test_clients_outside_a_round_are_tested_with_the_model_that_the_round_would_send_them() -> None:
    simulation = Simulation(small(participation=0.5, rounds=3), make_pool(1))
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


@pytest.mark.parametrize("workers", [1, 2])
def test_the_server_reads_the_matrix_that_the_workers_filled(
    workers: int, monkeypatch: pytest.MonkeyPatch
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
    with make_pool(workers) as pool:
        simulation = Simulation(small(method="fedavg", attack="ipm", participation=0.5), pool)
        simulation.play()
        simulation.play()
    assert len(filled) == 2
    assert read == filled


@pytest.mark.parametrize("method", ["fedcap", "fedavg", {"name": "fedfomo", "models": 3}, "local"], ids=str)
def test_the_size_of_evaluation_blocks_changes_no_accuracy(
    method: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"method": method, "participation": 0.3, "attack": "lie", "rounds": 3}
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
        time.sleep(0.3)
        return models_for(*arguments)

    monkeypatch.setattr(Server, "models_for", slowly)
    seconds = simulation.play().seconds
    assert seconds.server >= 0.3  # for participants
    assert seconds.evaluate >= 0.3  # for the others
    assert seconds.total >= seconds.train + seconds.evaluate + seconds.attack + seconds.server


def test_without_an_attack_the_server_assumes_no_malicious_client_by_default() -> None:
    def rule(**settings: object) -> list[str]:
        method = {"name": "fedavg", "rule": {"name": "bucketing", "rule": "median"}}
        return list(small(method=method, rounds=1, **settings).run().history[0].notes)

    assert rule() == []
    assert rule(assumed=0.3) == ["6 malicious of 20 rows assumed: Bucketing, given M = 6, tolerates 4"]
    assert rule(attack="lie") == rule(assumed=0.3)
    assert rule(attack="lie", assumed=0.1) == []


def test_without_an_attack_multi_krum_averages_all_clients() -> None:
    quiet = small(method={"name": "fedavg", "rule": "multi-krum"}, rounds=2).run()
    mean = small(method={"name": "fedavg", "rule": {"name": "trimmed-mean"}}, rounds=2).run()
    assert quiet.tacc_shared == pytest.approx(mean.tacc_shared, abs=1.5)


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


def test_the_digest_does_not_depend_on_the_form_of_a_setting() -> None:
    rules = ("median", "Median", {"name": "median"})
    assert len({small(method={"name": "fedavg", "rule": rule}).digest() for rule in rules}) == 1
    detectors = ("norm", ["norm"], [{"name": "NORM"}], [{"name": "norm", "limit": 6.0}])
    assert len({small(method={"name": "fedcap", "detectors": names}).digest() for names in detectors}) == 1
    policies = ("strikes", {"name": "strikes", "strikes": 1})
    assert len({small(method={"name": "fedavg", "policy": policy}).digest() for policy in policies}) == 1
    assert small(malicious=0.1).digest() == small(malicious=0.2).digest()  # there is no attack
