"""The outcome of a run: its figures against NumPy, its size, its key, and reading it back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import refused, round_record
from run_tools import SMALL

from fedcap.errors import InputError
from fedcap.runs import (
    Accuracy,
    ClientAccuracy,
    Curve,
    Norms,
    Outcome,
    RoundRecord,
    Run,
    percentile,
    read,
    settings_key,
)
from fedcap.runs.outcome import LARGEST
from fedcap.simulation import Experiment


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("outcome") / "run"
    Experiment(**SMALL).run(out=out)
    return read(out)


def record(number: int, shared: float | None, personal: float, norms: dict[str, float | None]) -> RoundRecord:
    accuracy = Accuracy(shared, personal, {"a": ClientAccuracy(shared, personal)})
    scores = {"norm": norms} if norms else {}
    return round_record(number, ["a"], accuracy=accuracy, scores=scores)


def test_an_outcome_has_the_figures_of_the_result(run: Run) -> None:
    outcome, result = Outcome.of(run), run.result
    assert result is not None
    for name in ("tacc", "tacc_shared", "tacc_personal", "tacc_worst_client", "dacc", "fpr", "fnr", "rounds"):
        assert getattr(outcome, name) == getattr(result, name)
    assert (outcome.seconds, outcome.bytes_per_round) == (result.seconds, result.bytes_per_round)
    assert outcome.digest == run.provenance.digest
    assert outcome.provenance["data_hash"] == run.provenance.data_hash
    accuracy = result.history[-1].accuracy
    assert accuracy is not None
    each = [getattr(client, accuracy.reading) for client in accuracy.clients.values()]
    assert outcome.tacc_p10 == pytest.approx(np.percentile(each, 10))
    assert [client.id for client in outcome.clients] == list(run.provenance.clients)
    assert [client.id for client in outcome.clients if client.malicious] == list(run.provenance.malicious)
    assert outcome.curve.personal == [round(r.accuracy.personal, 2) for r in run.rounds if r.accuracy]


def test_it_is_small_and_reads_back_the_same(run: Run) -> None:
    outcome = Outcome.of(run)
    text = outcome.to_json()
    assert len(text.encode()) < LARGEST / 4
    assert Outcome.from_json(text) == outcome
    assert "workers" not in json.loads(text)["settings"]


def test_so_many_clients_that_it_would_be_large_are_left_out(run: Run) -> None:
    assert run.result is not None
    crowd = [replace(client, id=f"{client.id}-{at}") for at in range(100) for client in run.result.clients]
    outcome = Outcome.of(replace(run, result=replace(run.result, clients=crowd)))
    assert list(outcome.clients) == []
    assert len(outcome.to_json()) <= LARGEST


def test_a_run_that_has_not_finished_has_no_outcome(run: Run) -> None:
    with refused("unfinished-run"):
        Outcome.of(replace(run, result=None))


@pytest.mark.parametrize("percent", [0, 10, 37.5, 50, 100])
def test_percentiles_are_numpys(percent: float) -> None:
    values = np.random.default_rng(0).uniform(0, 100, 13).tolist()
    assert percentile(values, percent) == pytest.approx(np.percentile(values, percent))
    assert percentile([4.0], percent) == 4.0


def test_a_long_curve_is_thinned_and_keeps_its_last_round() -> None:
    history = [record(number, None, number / 3, {}) for number in range(1, 251)]
    curve = Curve.of(history)
    assert len(curve.rounds) == 84
    assert curve.rounds[-1] == 250
    assert set(np.diff(curve.rounds)) == {3}
    assert curve.personal[-1] == 83.33
    assert set(curve.shared) == {None}
    assert list(Curve.of(history[:100]).rounds) == list(range(1, 101))


def test_norms_are_medians_to_three_digits() -> None:
    seen = {"a": 1.0, "b": 2.0, "c": 4.23456, "d": None, "m": 123.456}
    norms = Norms.of([record(1, 1.0, 1.0, seen), record(2, 1.0, 1.0, {"a": 2.0})], frozenset("m"))
    assert norms is not None
    assert (norms.rounds, norms.benign, norms.malicious) == ([1, 2], [2.0, 2.0], [123.0, None])
    assert Norms.of([record(1, 1.0, 1.0, {})], frozenset()) is None


def test_the_key_is_that_of_the_planned_run_and_of_nothing_else(run: Run) -> None:
    key = Outcome.of(run).key
    planned = Experiment(**SMALL).settings()
    assert settings_key(planned) == key
    assert settings_key(dict(reversed(planned.items()))) == key
    assert settings_key(planned | {"workers": 2, "checkpoint_every": 5}) == key
    assert settings_key(planned | {"seed": 1}) != key
    assert settings_key(planned | {"rounds": 4}) != key


def test_of_ones_own_data_the_key_and_the_outcome_have_the_files_name_alone(run: Run) -> None:
    def with_path(path: str) -> Run:
        dataset = run.settings.dataset.model_copy(update={"path": path})
        return replace(run, settings=run.settings.model_copy(update={"dataset": dataset}))

    moved, here, other = (Outcome.of(with_path(p)) for p in ("/a/x.csv", "/b/c/x.csv", "/a/y.csv"))
    assert moved.settings["dataset"]["path"] == "x.csv"
    assert moved.key == here.key != other.key


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-40], lambda text: text.replace('"tacc": ', '"tac": '), lambda text: "[]"]
)
def test_a_damaged_outcome_is_an_error_in_one_line(run: Run, damage: object) -> None:
    with pytest.raises(InputError) as error:
        Outcome.from_json(damage(Outcome.of(run).to_json()))  # type: ignore[operator]
    assert "damaged" in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_the_commit_is_written_down_where_there_is_a_checkout(run: Run) -> None:
    here = Path(__file__).parents[1]
    commit = run.provenance.commit
    assert len(commit.rstrip("+")) == (40 if (here / ".git").exists() else 0)
    assert Outcome.of(run).provenance["commit"] == commit


def test_a_curve_tells_the_better_reading_after_so_many_rounds() -> None:
    history = [record(1, 50.0, 60.0, {}), record(2, 75.0, 70.0, {}), record(4, None, 80.0, {})]
    curve = Curve.of(history)
    assert [curve.after(rounds) for rounds in (1, 2, 3, 4)] == [60.0, 75.0, None, 80.0]
