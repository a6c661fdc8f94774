"""Records: they are read back as written, and a result follows from the records and the clients alone."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from helpers import CountingName, refused, round_record

from fedcap.runs import (
    Accuracy,
    AttackStats,
    ClientAccuracy,
    ClientResult,
    Provenance,
    Reason,
    Removal,
    Result,
    RoundRecord,
    Seconds,
    summarise,
)
from fedcap.runs.result import client_results

CLIENTS = ["a", "b", "c", "d", "e"]


def over(value: float | None = 12.0, limit: float = 10.0) -> Reason:
    return Reason("norm", value, limit, f"norm {value} over {limit:g}")


def record(number: int, **facts: Any) -> RoundRecord:
    costs = {"bytes": 100 * number, "seconds": Seconds(server=0.25, total=float(number))}
    return round_record(number, list(CLIENTS), **costs | facts)


def accuracy(shared: float | None, personal: float) -> Accuracy:
    """Three benign clients, of whom `a` is 10 percent worse off than the mean, and `c` 10 better."""
    return Accuracy(
        shared,
        personal,
        {
            client: ClientAccuracy(None if shared is None else shared + more, personal + more)
            for client, more in (("a", -10.0), ("b", 0.0), ("c", 10.0))
        },
    )


FULL = record(
    2,
    asked=["e"],
    accuracy=accuracy(70.5, 0.1 + 0.2),
    scores={"norm": {"a": 1.5, "d": None}, "cosine": {"a": -0.25}},
    limits={"norm": 10.0, "cosine": None},
    weights_entropy=1.25,
    refused={"b": "not finite"},
    bounded={"c": "claims 1000000 samples"},
    removed={"d": over(None)},
    attack=AttackStats(2.0, 1.0, None),
    diverged=["b"],
    notes=["krum takes 2 of 5 as malicious, not 3"],
)
HISTORY = [
    record(1, accuracy=accuracy(50.0, 60.0), removed={"d": over(20.0)}),
    record(2),
    record(3, accuracy=accuracy(85.0, 80.0), removed={"e": over(), "a": over(11.0)}),
]


def test_a_round_is_one_line_and_comes_back_as_it_was() -> None:
    line = FULL.to_json()
    assert "\n" not in line
    assert RoundRecord.from_json(line) == FULL
    assert RoundRecord.from_json(line).to_json() == line


def test_numbers_that_json_cannot_hold_are_written_as_null() -> None:
    wild = replace(FULL, scores={"norm": {"a": nan, "b": inf, "c": 1.0}}, weights_entropy=-inf)
    found = json.loads(wild.to_json())
    assert found["scores"] == {"norm": {"a": None, "b": None, "c": 1.0}}
    assert found["weights_entropy"] is None


def test_a_result_comes_back_as_it_was_and_names_every_figure() -> None:
    result = summarise(HISTORY, CLIENTS, {"d", "e"}, detects=True)
    text = result.to_json()
    assert Result.from_json(text, HISTORY) == result
    keys = "tacc tacc_shared tacc_personal tacc_worst_client dacc fpr fnr rounds_to_removal rounds_to_80"
    keys += " rounds diverged seconds seconds_server bytes_per_round removed clients metrics stopped"
    assert list(json.loads(text)) == keys.split()
    assert json.loads(text)["removed"]["d"] == {
        "round": 1,
        "reason": "norm 20.0 over 10",
        "score": "norm",
        "value": 20.0,
        "limit": 10.0,
    }


def test_a_result_has_the_figures_of_the_last_round_and_the_costs_of_all() -> None:
    result = summarise(HISTORY, CLIENTS, ["d", "e"], detects=True)
    assert (result.tacc, result.tacc_shared, result.tacc_personal) == (85.0, 85.0, 80.0)
    assert result.tacc_worst_client == 75.0  # a's, with the model it receives: the better reading
    assert (result.rounds, result.rounds_to_80) == (3, 3)
    assert (result.seconds, result.seconds_server, result.bytes_per_round) == (6, 0.75, 200)
    assert result.history == HISTORY
    assert result.clients[0] == ClientResult(
        "a", False, 75.0, 70.0, Removal(3, "norm 11.0 over 10", "norm", 11.0, 10.0)
    )
    assert result.clients[1] == ClientResult("b", False, 85.0, 80.0, None)
    assert [client.id for client in result.clients if client.malicious] == ["d", "e"]
    assert (result.clients[4].shared, result.clients[4].personal) == (None, None)


@pytest.mark.parametrize(
    ("malicious", "detects", "rates", "when"),
    [
        # Removed are d (round 1), a and e (round 3), of five clients.
        (["d", "e"], True, (80.0, 100 / 3, 0.0), 2.0),
        (["b", "e"], True, (40.0, 200 / 3, 50.0), 3.0),
        (["b", "c"], True, (0.0, 100.0, 100.0), None),
        ([], True, (None, 60.0, None), None),
        (["d", "e"], False, (None, None, None), 2.0),
    ],
)
def test_detection_is_counted_over_clients(
    malicious: list[str], detects: bool, rates: tuple[float | None, ...], when: float | None
) -> None:
    result = summarise(HISTORY, CLIENTS, malicious, detects)
    assert (result.dacc, result.fpr, result.fnr) == pytest.approx(rates)
    assert result.rounds_to_removal == when


def test_without_a_shared_model_accuracy_is_the_personal_one() -> None:
    result = summarise([record(1, accuracy=accuracy(None, 60.0))], CLIENTS, [], detects=False)
    assert (result.tacc, result.tacc_shared, result.tacc_worst_client) == (60.0, None, 50.0)
    assert result.rounds_to_80 is None


@pytest.mark.parametrize(
    ("first", "last", "diverged"),
    [
        ({}, {}, False),
        ({"diverged": ["b"]}, {}, False),  # b trains again
        ({}, {"diverged": ["b"]}, True),
        ({"diverged": ["b"], "removed": {"b": over(None)}}, {}, True),
        ({"diverged": ["b"], "removed": {"d": over()}}, {}, False),
    ],
)
def test_a_run_diverged_if_a_client_cannot_train_at_its_end(
    first: dict[str, Any], last: dict[str, Any], diverged: bool
) -> None:
    history = [record(1, **first), record(2, accuracy=accuracy(10.0, 10.0), **last)]
    assert summarise(history, CLIENTS, [], detects=True).diverged is diverged


@pytest.mark.parametrize("history", [[], [record(1)]])
def test_there_is_no_result_without_a_last_evaluation(history: list[RoundRecord]) -> None:
    with refused("not-evaluated"):
        summarise(history, CLIENTS, [], detects=True)


def test_provenance_comes_back_as_it_was() -> None:
    facts = Provenance(
        versions={"torch": "2.4", "python": "3.12", "platform": "Linux"},
        threads=1,
        seed=7,
        digest="5e7",
        data_hash="d",
        partition_hash="p",
        weights=13_706,
        clients=["u03", "u1"],
        malicious=["u1"],
        settings_digest="5e",
        course="c0",
        computes=2,
        code={"my_attack:Noise": "c0de"},
    )
    assert Provenance.from_json(facts.to_json()) == facts
    longer = facts.extend(replace(facts, digest="60", settings_digest="e60"), rounds=30)
    assert Provenance.from_json(longer.to_json()) == longer
    assert (longer.digest, longer.settings_digest, longer.course) == ("60", "e60", "c0")
    # Killed in between, config.toml has the settings of before or of now.
    assert longer.of("e60") == longer
    assert longer.of("5e") == facts
    assert longer.of("other") is None


def test_the_time_for_the_results_of_clients_is_proportional_to_their_number() -> None:
    clients = [CountingName(f"client {k}") for k in range(1000)]
    CountingName.compared = 0
    found = client_results([], clients, [CountingName(name) for name in clients[500:]])
    assert [client.malicious for client in found] == 500 * [False] + 500 * [True]
    assert CountingName.compared < 5000
