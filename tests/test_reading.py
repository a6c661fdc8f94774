"""A run read back without torch: its clients, its rows, and its view in a notebook."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import Killed, Killer, refused

import fedcap
from fedcap import runs
from fedcap.runs import Run, summarise

QUICK = {"rounds": 3, "training": {"lr": 0.1}, "workers": 1, "eval_every": 2}
ATTACKED = {**QUICK, "attack": {"name": "ipm", "clients": [1, 5, 9]}}
COLUMNS = ["round", "client", "malicious", "took_part", "asked", "shared", "personal", "norm"]
COLUMNS += ["refused", "removed"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "finished"
    fedcap.Experiment(**ATTACKED).run(out=path)
    return path


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed after its third round, of which only the second was evaluated."""
    path = tmp_path_factory.mktemp("runs") / "killed"
    with pytest.raises(Killed):
        fedcap.Experiment(**ATTACKED | {"rounds": 9}).run(out=path, observers=[Killer(3)])
    return path


@pytest.fixture
def no_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)


def test_an_unfinished_run_has_clients_by_its_last_evaluated_round_and_all_removals(killed: Path) -> None:
    run = fedcap.read(killed)
    assert run.result is None
    assert len(run.rounds) == 3
    tested = run.rounds[1].accuracy.clients
    assert run.rounds[2].accuracy is None
    for client in run.clients:
        assert client.malicious == (client.id in ("1", "5", "9"))
        if not client.malicious:
            assert client.shared == tested[client.id].shared
            assert client.personal == tested[client.id].personal
        else:
            assert client.shared is client.personal is None
    removed = {client for record in run.rounds for client in record.removed}
    assert removed == {"1", "5", "9"}
    assert {client.id for client in run.clients if client.removed} == removed


def test_clients_of_an_unfinished_run_are_those_of_the_result_it_would_have(finished: Path) -> None:
    run = runs.read(finished)
    facts = run.provenance
    oracle = summarise(run.rounds, facts.clients, facts.malicious, detects=True)
    assert list(replace(run, result=None).clients) == list(oracle.clients)


@pytest.mark.usefixtures("no_pandas")
def test_a_frame_has_a_row_for_each_round_and_client(finished: Path) -> None:
    run = fedcap.read(finished)
    rows = run.frame()
    assert [(row["round"], row["client"]) for row in rows] == [
        (number, str(client)) for number in (1, 2, 3) for client in range(20)
    ]
    assert all(list(row) == COLUMNS for row in rows)
    lines = [json.loads(line) for line in (finished / "rounds.jsonl").read_text().splitlines()]
    for row in rows:
        line, client = lines[row["round"] - 1], row["client"]
        tested = (line["accuracy"] or {"clients": {}})["clients"].get(client, {})
        assert row["malicious"] == (client in ("1", "5", "9"))
        assert row["took_part"] == (client in line["participants"])
        assert row["asked"] == (client in line["asked"])
        assert row["norm"] == line["scores"]["norm"].get(client)
        assert (row["shared"], row["personal"]) == (tested.get("shared"), tested.get("personal"))
        assert row["removed"] == line["removed"].get(client, {}).get("sentence")
        assert row["refused"] == line["refused"].get(client)
    assert sum(row["removed"] is not None for row in rows) == 3
    assert not any(row["took_part"] for row in rows if row["malicious"] and row["round"] > 1)


@pytest.mark.usefixtures("no_pandas")
def test_a_score_that_is_called_like_a_column_does_not_hide_it(finished: Path) -> None:
    run = runs.read(finished)
    first = replace(run.rounds[0], scores={"client": {"3": 0.5}})
    rows = replace(run, rounds=[first]).frame()
    assert rows[3]["client"] == "3"
    assert rows[3]["score_client"] == 0.5


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is not installed")
def test_with_pandas_a_frame_is_a_data_frame(finished: Path) -> None:
    run = fedcap.read(finished)
    frame = run.frame()
    assert type(frame).__name__ == "DataFrame"
    assert list(frame.columns) == COLUMNS
    assert len(frame) == 60
    assert frame[frame["round"] == 3]["personal"].notna().sum() == 17
    assert list(replace(run, rounds=[]).frame().columns) == [c for c in COLUMNS if c != "norm"]


def test_a_run_is_read_and_put_into_rows_without_torch(finished: Path) -> None:
    code = (
        "import sys; from fedcap import runs; run = runs.read(sys.argv[1]); run.frame(); repr(run)\n"
        "run.clients; repr(run.result); assert 'torch' not in sys.modules, 'torch'"
    )
    subprocess.run([sys.executable, "-c", code, str(finished)], check=True)


def test_people_can_read_a_run_and_a_result(finished: Path) -> None:
    run = fedcap.read(finished)
    result = run.result
    figures = (
        f"{result.tacc:.1f} %  (shared {result.tacc_shared:.1f}, personal {result.tacc_personal:.1f};"
        f" worst client {result.tacc_worst_client:.1f})"
    )
    assert repr(result).splitlines() == [
        "Result of 3 rounds with 20 clients, 3 of them malicious",
        f"  accuracy   {figures}",
        "  detection  3 of 3 attackers removed; no honest client removed",
    ]
    started = replace(runs.read(finished), rounds=[], result=None)
    assert "not measured yet" in repr(started)
    assert repr(run).splitlines() == [
        "digits · fedcap · ipm, 3 of 20 clients malicious · seed 0 · 3 rounds",
        f"  accuracy   {figures}",
        "  detection  3 of 3 attackers removed; no honest client removed",
        f"  records    {finished}",
    ]


def test_where_the_models_are_is_neither_written_nor_compared(finished: Path) -> None:
    run = fedcap.read(finished)
    plain = runs.read(finished)
    assert isinstance(run, Run)
    assert run.result.models is run or run.result.models is not None
    assert run.result == plain.result
    assert run.result.to_json() == plain.result.to_json() == (finished / "result.json").read_text()
    with refused("no-model"):
        plain.result.model("3")
