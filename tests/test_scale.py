"""Runs with many registered clients: what is tested, recorded and held follows the participants."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import Killed, Killer, refused
from run_tools import SMALL, assert_same, killed

import fedcap
from fedcap.data import federate, partitions
from fedcap.data.base import tensors_digest
from fedcap.data.own import from_arrays
from fedcap.data.partitions import Shards
from fedcap.names import LONGEST_LIST, NumberedNames
from fedcap.runs import RunDirectory
from fedcap.simulation import Simulation, loop, make_pool, store
from fedcap.training import Layout


def many(clients: int, **more: object) -> fedcap.Experiment:
    """An experiment with four samples of bytes for each client, of which four take part in a round."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (4 * clients, 6), dtype=np.uint8), rng.integers(0, 3, 4 * clients)
    settings: dict[str, object] = {
        "dataset": {"data": (x, y), "clients": clients, "samples": 4, "partition": "iid"},
        "attack": "ipm",
        "rounds": 2,
        "participation": 4 / clients,
        "training": {"epochs": 1, "batch_size": 2},
        "workers": 1,
    }
    return fedcap.Experiment(**{**settings, **more})


# --- Partitions


def test_the_hash_of_a_partition_is_that_of_its_clients_tensors() -> None:
    shares = [torch.tensor([5, 2]), torch.tensor([7]), torch.tensor([1, 0, 3])]
    shards = Shards.of(shares)
    assert shards.digest() == tensors_digest(*shares) == tensors_digest(*shards)
    assert [share.tolist() for share in shards] == [[5, 2], [7], [1, 0, 3]]
    assert shards[-1].tolist() == [1, 0, 3]
    assert shards.sizes.tolist() == [2, 1, 3]
    with pytest.raises(IndexError):
        shards[3]


@pytest.mark.parametrize("holdout", [None, 0.3])
@pytest.mark.parametrize("root", [0, 20])
@pytest.mark.parametrize("own_split", [False, True])
def test_the_sizes_of_the_parts_are_known_before_they_are_made(
    holdout: float | None, root: int, own_split: bool
) -> None:
    test = np.arange(120) % 4 == 0 if own_split else None
    dataset = from_arrays("t", np.eye(120), np.arange(120) % 2, test=test)
    federated = federate(dataset, partitions.make("iid"), 7, None, 0.6, 3, root, holdout)
    for sizes, parts in zip(federated.sizes, (federated.train, federated.test), strict=True):
        assert sizes.tolist() == list(map(len, parts))


# --- Tested clients


def test_a_sample_of_the_honest_clients_is_tested_in_every_round(tmp_path: Path) -> None:
    whole = fedcap.Experiment(**SMALL).run()
    result = fedcap.Experiment(**SMALL, eval_clients=2).run(out=tmp_path / "run")
    (tested,) = {tuple(record.accuracy.clients) for record in result.history}
    assert len(tested) == 2
    assert not set(tested) & {client.id for client in result.clients if client.malicious}
    for record, other in zip(result.history, whole.history, strict=True):
        assert record.accuracy.clients == {client: other.accuracy.clients[client] for client in tested}
        assert record.scores == other.scores
        assert [note for note in record.notes if "sample of 2 of" in note]
    assert fedcap.read(tmp_path / "run").result == result


def test_above_a_number_of_clients_a_sample_is_the_default(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop, "MOST_TESTED", 5)
    monkeypatch.setattr(loop, "SAMPLE", 3)
    result = fedcap.Experiment(**SMALL).run()
    assert len(result.history[-1].accuracy.clients) == 3
    assert "eval_clients" in caplog.text


def test_the_default_number_of_tested_clients_leaves_the_digest_unchanged() -> None:
    default, sampled = fedcap.Experiment(**SMALL), fedcap.Experiment(**SMALL, eval_clients=2)
    assert "eval_clients" not in default.settings()
    assert default.digest() != sampled.digest()


# --- Records


def test_the_records_of_a_run_name_the_clients_that_took_part_or_were_tested(tmp_path: Path) -> None:
    clients = LONGEST_LIST + 1
    experiment = many(clients, eval_clients=5)
    result = experiment.run(out=tmp_path / "run")
    assert len(result.clients) == clients - result.unlisted <= 2 * 4 + 5
    assert "recorded clients" in repr(result)
    facts = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert facts["clients"] == clients
    assert len(facts["malicious"]) == int(0.3 * clients)
    run = fedcap.read(tmp_path / "run")
    assert run.result == result
    assert run.provenance.clients == NumberedNames(clients)
    malicious = set(run.provenance.malicious)
    assert all(client.malicious == (client.id in malicious) for client in result.clients)
    assert {row["client"] for row in _rows(run)} == {client.id for client in result.clients}
    assert sum(path.stat().st_size for path in (tmp_path / "run").iterdir()) < 4_000_000
    trained = next(client.id for client in result.clients if run.models._source.client_state(client.id))
    assert run.model(trained) is not None


def _rows(run: fedcap.Run) -> list[dict[str, object]]:
    rows = run.frame()
    return rows if isinstance(rows, list) else rows.to_dict("records")


def test_a_malicious_client_that_is_no_client_is_an_error(tmp_path: Path) -> None:
    many(LONGEST_LIST + 1, eval_clients=2, rounds=1).run(out=tmp_path)
    path = tmp_path / "provenance.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"malicious": [LONGEST_LIST + 1]}))
    with refused("damaged-run"):
        RunDirectory(tmp_path).provenance()


# --- Cost


def test_a_run_of_ten_thousand_clients_resumes_to_the_same_bits(tmp_path: Path) -> None:
    many(10_000, eval_clients=4, rounds=3).run(out=tmp_path / "whole")
    experiment = many(10_000, eval_clients=4, rounds=3)
    with pytest.raises(Killed):
        experiment.run(out=tmp_path / "run", observers=[Killer(after=2)])
    experiment.run(out=tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("write", [9, 10, 11, 12])
def test_a_run_of_ten_thousand_clients_killed_in_a_write_resumes_to_the_same_bits(
    write: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writes of a round are those of mixing weights, record, states and checkpoint."""
    monkeypatch.setenv("FEDCAP_STATE_MEMORY", "0")
    monkeypatch.setattr(store, "IN_MEMORY", 0)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (40_000, 6), dtype=np.uint8), rng.integers(0, 3, 40_000)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    settings = {
        **SMALL,
        "dataset": {"path": str(tmp_path / "data.npz"), "name": "npz", "clients": 10_000, "samples": 4},
        "attack": "ipm",
        "participation": 20 / 10_000,
        "eval_clients": 4,
        "training": {"lr": 0.05, "epochs": 1, "batch_size": 2},
    }
    fedcap.Experiment(**settings).run(out=tmp_path / "whole")
    assert killed(tmp_path / "run", write, settings)
    assert not (tmp_path / "run" / "result.json").exists()
    fedcap.Experiment(**settings).run(out=tmp_path / "run")
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_no_object_is_held_for_a_client_that_did_not_take_part() -> None:
    experiment = many(50_000, attack="none", eval_clients=4)
    experiment.load_data()  # what is loaded once for all, such as modules
    before = sys.getallocatedblocks()
    with make_pool(1) as pool:
        simulation = Simulation(experiment, pool)
        simulation.play()
        assert sys.getallocatedblocks() - before < 10_000
    assert len(simulation.names) == 50_000


def test_fedfomo_refuses_more_models_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedcap.methods import fedfomo

    size = Layout.of(fedcap.simulation.Simulation(fedcap.Experiment(**SMALL), make_pool(1)).build()).size
    monkeypatch.setattr(fedfomo, "LARGEST", 5 * 4 * size)
    with refused("too-large") as caught:
        fedcap.Experiment(**{**SMALL, "method": "fedfomo", "participation": 1.0}).run()
    needed = (6 * size + 6**2) * 4 / 2**30
    assert f"each of the 6 clients that took part: {needed:.1f} GB, and {5 * 4 * size / 2**30:g} GB" in str(
        caught.value
    )
