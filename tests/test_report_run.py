"""The report on a run: figures, checks, series, events, clients, and the map of mixing weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from federation_tools import federation
from helpers import refused
from report_tools import decoded, reason, record, write
from run_tools import SMALL

import fedcap
from fedcap.cli.report import report_on
from fedcap.report.mixing import order_by_similarity
from fedcap.report.model import Check, Client, Report, RunData
from fedcap.report.pack import pack, quantise
from fedcap.report.page import build_report
from fedcap.runs import Accuracy, AttackStats, ClientAccuracy, Mixing, read

NAMES = ["ada", "bob", "cyd", "dan"]


def check(report: Report, name: str) -> Check:
    return next(each for each in report.checks if each.name == name)


def run_of(report: Report) -> RunData:
    assert report.run is not None
    return report.run


def clients_of(report: Report) -> Mapping[str, Client]:
    return {client.name: client for client in run_of(report).clients}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("real")
    attack = {"name": "ipm", "epsilon": 50.0}
    for method in ("fedcap", "local"):
        fedcap.Experiment(**{**SMALL, "attack": attack, "method": method}).run(out=folder / method)
    return folder / "fedcap", folder / "local"


def test_series_are_those_of_the_records(real: tuple[Path, Path]) -> None:
    run, data = read(real[0]), run_of(build_report(real[0]))
    assert data.accuracy is not None
    assert data.costs is not None
    assert [client.name for client in data.clients] == list(run.provenance.clients)
    assert data.accuracy.rounds == data.costs.rounds == [1, 2, 3]
    for at, each in enumerate(run.rounds):
        assert each.accuracy is not None
        assert data.accuracy.personal.mean[at] == pytest.approx(each.accuracy.personal, abs=0.005)
        assert data.accuracy.personal.worst[at] == pytest.approx(
            min(own.personal for own in each.accuracy.clients.values()), abs=0.005
        )
        for row, client in enumerate(run.provenance.clients):
            own = each.accuracy.clients.get(client)
            value = data.accuracy.personal.clients[row, at]
            assert np.isnan(value) if own is None else value == own.personal
            score, norm = data.scores[0].values[row, at], each.norms.get(client)
            assert np.isnan(score) if norm is None else score == norm
    assert data.costs.bytes == [each.bytes for each in run.rounds]
    assert [(event.round, data.clients[event.client].name) for event in data.events] == [
        (removal.round, client) for client, removal in run.removed.items()
    ]


def test_sample_counts_are_those_of_the_clients(real: tuple[Path, Path]) -> None:
    counts = fedcap.Experiment(**SMALL).load_data()
    trained = dict(zip(counts.names, map(len, counts.train), strict=True))
    found = {name: client.samples for name, client in clients_of(build_report(real[0])).items()}
    took_part = {client for each in read(real[0]).rounds for client in each.participants}
    assert found == {name: trained[name] if name in took_part else None for name in trained}


def test_gain_compares_the_same_round_and_the_same_reading(real: tuple[Path, Path], tmp_path: Path) -> None:
    path, alone = real
    own = {client.id: client.personal for client in read(path).clients}
    theirs = {client.id: client.personal for client in read(alone).clients}
    for client in clients_of(build_report(path, local=alone)).values():
        if client.role == "honest":
            assert client.local == theirs[client.name]
            assert client.gain == pytest.approx(own[client.name] - theirs[client.name], abs=0.05)
        else:
            assert client.gain is None
    longer = {**SMALL, "attack": {"name": "ipm", "epsilon": 50.0}, "rounds": 5}
    fedcap.Experiment(**longer, method="local").run(out=tmp_path / "longer")
    third = read(tmp_path / "longer").rounds[2].accuracy
    assert third is not None
    found = clients_of(build_report(path, local=tmp_path / "longer"))
    assert {name: found[name].local for name in third.clients} == {
        name: client.personal for name, client in third.clients.items()
    }
    fedcap.Experiment(**{**longer, "rounds": 2}, method="local").run(out=tmp_path / "shorter")
    report = build_report(path, local=tmp_path / "shorter")
    assert {client.gain for client in run_of(report).clients} == {None}
    assert "points over Local" not in [figure.label for figure in report.figures]


def test_local_must_be_a_run_on_the_same_data(real: tuple[Path, Path], tmp_path: Path) -> None:
    other = {**SMALL, "method": "local", "seed": 1, "rounds": 1}
    fedcap.Experiment(**other).run(out=tmp_path / "other")
    with refused("other-data"):
        build_report(real[0], local=tmp_path / "other")


def test_the_map_has_each_weight_in_its_place(real: tuple[Path, Path]) -> None:
    data = run_of(build_report(real[0]))
    assert data.mixing is not None
    names = [data.clients[row[0]].name for row in data.mixing.rows]
    for at, mixing in enumerate(read(real[0]).mixings):
        for r, receiver in enumerate(names):
            for c, contributor in enumerate(names):
                value = data.mixing.weights[at, r, c]
                if receiver in mixing.receivers and contributor in mixing.contributors:
                    place = mixing.receivers.index(receiver), mixing.contributors.index(contributor)
                    assert value == mixing.weights[place]
                else:
                    assert np.isnan(value)


@pytest.mark.parametrize("power", [1, 40])  # 40: a few weights are far above the others
def test_packed_weights_are_as_exact_as_the_page_says(tmp_path: Path, power: int) -> None:
    names = [f"c{i}" for i in range(12)]
    weights = np.random.default_rng(power).uniform(0, 1, (12, 12)) ** power
    rounds = [record(1, names, weights_entropy=1.0)]
    report = build_report(write(tmp_path, rounds, names, mixings=[Mixing(1, names, names, weights)]))
    assert "Mixing weights are rounded to a 200th of the largest weight." in report.omitted
    mixing = decoded(json.loads(pack(report)))["run"]["mixing"]
    order = [row[0] for row in mixing["rows"]]
    assert np.abs(np.array(mixing["weights"][0]) - weights[np.ix_(order, order)]).max() <= weights.max() / 200


def test_similar_clients_are_next_to_each_other() -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        group = draw.permutation([0] * 5 + [1] * 4 + [2] * 6)
        weights = np.where(group[:, None] == group, 0.15, 0.01) + 0.005 * draw.random((3, 15, 15))
        ordered = group[order_by_similarity(weights)]
        assert (np.diff(ordered) != 0).sum() == 2, ordered  # three blocks
    weights = np.full((2, 4, 4), np.nan)
    assert sorted(order_by_similarity(weights)) == [0, 1, 2, 3]
    weights[0, 0, 2] = weights[0, 1, 3] = 0.5
    order = order_by_similarity(weights)
    assert abs(order.index(0) - order.index(2)) == abs(order.index(1) - order.index(3)) == 1


def test_the_overview_says_what_ran_how_accurate_it_is_and_who_was_removed(tmp_path: Path) -> None:
    sent = AttackStats(10.0, 2.0, -0.9)
    first = record(1, NAMES, attack=sent, removed={"dan": reason()})
    report = build_report(write(tmp_path, [first, record(2, NAMES[:3])], NAMES, ["dan"]))
    assert [(each.mark, each.name, each.section) for each in report.checks] == [
        ("ok", "Malicious clients removed", "detection"),
        ("ok", "Honest clients removed", "detection"),
        ("ok", "Attack", "attack"),
        ("ok", "Divergence", "detection"),
        ("ok", "Worst client", "clients"),
    ]
    assert check(report, "Malicious clients removed").text == "1 of 1, the last in round 1: client dan."
    assert "5 times as long" in check(report, "Attack").text
    assert [(each.label, each.value) for each in report.figures][:4] == [
        ("accuracy", "90.0 %"),
        ("worst client", "90.0 %"),
        ("malicious clients removed", "1 of 1"),
        ("honest clients removed", "0 of 3"),
    ]


def test_checks_of_a_run_in_which_the_detection_failed(tmp_path: Path) -> None:
    same = AttackStats(2.0, 2.0, 0.99)
    first = record(1, NAMES, attack=same, removed={"ada": reason()}, diverged=["ada"])
    report = build_report(write(tmp_path, [first, record(2, NAMES[1:], attack=same)], NAMES, ["dan"]))
    assert {each.name: each.mark for each in report.checks} == {
        "Attack": "warn",
        "Honest clients removed": "bad",
        "Malicious clients removed": "bad",
        "Divergence": "bad",
        "Worst client": "ok",
    }
    assert "ada" in check(report, "Honest clients removed").text
    assert "dan" in check(report, "Malicious clients removed").text


@pytest.mark.parametrize(
    ("best", "worst", "mark"), [(90.0, 71.0, "ok"), (90.0, 69.0, "warn"), (15.0, 0.0, "warn")]
)
def test_a_client_far_below_the_others_is_a_warning(
    tmp_path: Path, best: float, worst: float, mark: str
) -> None:
    own = {name: ClientAccuracy(None, best) for name in NAMES} | {"ada": ClientAccuracy(None, worst)}
    last = replace(record(1, NAMES), accuracy=Accuracy(None, best, own))
    assert check(build_report(write(tmp_path, [last], NAMES)), "Worst client").mark == mark


def test_a_malicious_client_that_is_not_removed_may_have_a_small_share(tmp_path: Path) -> None:
    for share, mark in ((0.05, "warn"), (0.4, "bad")):
        weights = np.tile([(1 - share) / 3] * 3 + [share], (4, 1))
        rounds = [record(1, NAMES), record(2, NAMES, weights_entropy=1.0)]
        path = write(tmp_path / mark, rounds, NAMES, ["dan"], [Mixing(2, NAMES, NAMES, weights)])
        found = check(build_report(path), "Malicious clients removed")
        assert (found.mark, found.section) == (mark, "mixing")
        assert f"{100 * share:.1f} % of the models" in found.text
        assert clients_of(build_report(path))["dan"].share == pytest.approx(100 * share, abs=0.1)


def test_a_suspected_client_has_one_event_with_its_reason(tmp_path: Path) -> None:
    doubt = reason("collusion 0.9 over 0.5")
    rounds = [record(1, NAMES, suspected={"bob": doubt}, refused={"bob": "suspected", "cyd": "late"})]
    report = build_report(write(tmp_path, rounds, NAMES))
    assert [(event.client, event.kind, event.reason) for event in run_of(report).events] == [
        (1, "suspected", "collusion 0.9 over 0.5"),
        (2, "not counted", "late"),
    ]
    bob = clients_of(report)["bob"]
    assert (bob.state, bob.reason) == ("suspected", "collusion 0.9 over 0.5")


def test_a_client_whose_sample_count_is_limited_every_round_is_not_suspected(tmp_path: Path) -> None:
    rounds = [
        record(n, NAMES, bounded={"ada": f"claims 900 samples, counted as {500 + n}"}) for n in range(1, 21)
    ]
    report = build_report(write(tmp_path, rounds, NAMES))
    (event,) = run_of(report).events
    assert (event.kind, event.round, event.last, event.count) == ("limited", 1, 20, 20)
    assert event.reason == "sample count limited to 520 (reported: 900)"
    ada = clients_of(report)["ada"]
    assert (ada.state, ada.reason, ada.not_counted) == ("active", "", 0)


@pytest.mark.parametrize("method", ["fedcap", "fedavg"])
def test_a_federation_shows_the_ledger_and_removals_by_the_operator(tmp_path: Path, method: str) -> None:
    made = federation(tmp_path, method)
    (tmp_path / "federation.toml").write_text('host = "here"\n')
    before = report_on(tmp_path)
    assert (before.kind, before.summary) == ("federation", "The federation has not begun.")
    assert {client.state for client in run_of(before).clients} == {"approved"}
    with made.conductor() as conductor:
        conductor.play()
        made.ledger.remove("1", "it left", 1, by="operator")
        conductor.run()
    made.ledger.remove("2", "it moved away", 3, by="operator")
    made.ledger.ask("new", "late-comer", "key")
    report = report_on(tmp_path)
    clients = clients_of(report)
    for name, round, why in (("site-1", 2, "it left"), ("site-2", 3, "it moved away")):
        assert (clients[name].state, clients[name].removed) == ("removed", round)
        assert clients[name].reason == f"by the operator: {why}"
    assert (clients["late-comer"].identity, clients["late-comer"].state) == ("new", "asked")
    assert clients["site-0"].samples is not None
    removals = [event for event in run_of(report).events if event.kind == "removed"]
    assert [(event.client, event.round, event.reason) for event in removals] == [
        (1, 2, "by the operator: it left"),
        (2, 3, "by the operator: it moved away"),
    ]
    assert check(report, "Removed sites").text == "By the operator: site-1, site-2."
    assert ("removed", "2 of 6") in [(figure.label, figure.value) for figure in report.figures]
    assert clients_of(report_on(tmp_path / "run"))["site-2"].state == "removed"


def test_arrays_come_back_within_half_a_step_and_missing_values_as_null() -> None:
    draw = np.random.default_rng(0)
    for bits, array in ((16, draw.normal(50, 20, (9, 30))), (8, draw.random((4, 5, 6)))):
        array.flat[7] = np.nan
        array.flat[8] = np.inf
        made = quantise(array, bits)
        back = np.array(decoded(made), dtype=float)
        assert not made["log"]
        assert np.isnan(back.flat[[7, 8]]).all()
        known = np.isfinite(array)
        step = (array[known].max() - array[known].min()) / (2**bits - 2)
        assert np.abs(back[known] - array[known]).max() <= step / 2 + 1e-9


def test_a_few_huge_numbers_leave_the_others_readable() -> None:
    array = np.concatenate([np.random.default_rng(0).normal(3, 0.5, 200), [1e9, -1e7, 0.0]])
    made = quantise(array)
    assert made["log"]
    assert np.allclose(np.array(decoded(made)), array, rtol=0.005, atol=0.001)
    assert decoded(quantise(np.full((10, 10), np.nan))) == [[None] * 10] * 10
