"""Runs that an older version made stay readable: every command gives the numbers that are in their files."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import call
from safetensors.torch import load_file

import fedcap

OLD = Path(__file__).parent / "fixtures" / "old_runs"
FINISHED = ("fedcap", "hardened", "fedavg")
SIMULATED = (*FINISHED, "stopped")
FEDERATED = "federation/operator/run"
LINEAR = ("fedcap", "hardened", "stopped")
INPUTS = np.random.default_rng(0).normal(size=(5, 1, 8, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs' own network can be imported."""
    monkeypatch.syspath_prepend(OLD)


def lines(run: str) -> list[dict[str, Any]]:
    """Return the rounds of a run as its file has them."""
    return [json.loads(line) for line in (OLD / run / "rounds.jsonl").read_text().splitlines()]


def result(run: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((OLD / run / "result.json").read_text())
    return content


def personal(run: str, client: str) -> torch.Tensor:
    """Return a client's personal weights as the checkpoint has them."""
    tensors = load_file(OLD / run / "checkpoint.safetensors")
    names = json.loads(bytes(tensors["clients.clients"].tolist()))
    return tensors["clients.kept.personal"][names.index(client)]


def linear_answers(weights: torch.Tensor, inputs: np.ndarray) -> np.ndarray:
    """Return what one linear layer with a softmax answers, by hand."""
    matrix, bias = weights[:640].view(10, 64).double().numpy(), weights[640:].double().numpy()
    logits = inputs.reshape(len(inputs), 64) @ matrix.T + bias
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("run", [*SIMULATED, FEDERATED])
def test_python_reads_rounds_and_result(run: str) -> None:
    found, expected = fedcap.read(OLD / run), lines(run)
    assert len(found.rounds) == len(expected)
    for record, line in zip(found.rounds, expected, strict=True):
        known = {k: v for k, v in line.items() if k != "checksum"}
        if known["tallies"]:
            newer = {"auc": None, "calibration_error": None}
            readings = {name: newer | known["tallies"][name] for name in ("shared", "personal")}
            known["tallies"] |= {"clients": {}, **readings}
        assert json.loads(record.to_json()) == {"samples": {}, **known}
    assert (found.result is not None) == (run in FINISHED)
    if found.result is not None:
        assert json.loads(found.result.to_json()) == result(run)
    assert list(found.removed) == [client for line in expected for client in line["removed"]]
    mixed = [line["round"] for line in expected if line["weights_entropy"] is not None]
    for mixing in found.mixings:
        assert mixing.round in mixed
        assert (mixing.weights.sum(axis=1) < 1.02).all()
    assert [mixing.round for mixing in found.mixings] == mixed


@pytest.mark.parametrize("run", SIMULATED)
def test_show_prints_the_numbers_of_the_files(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "show", OLD / run, "--json")
    assert (code, err) == (0, "")
    (shown,) = json.loads(out)
    last = lines(run)[-1]["accuracy"]
    code, text, err = call(capsys, "show", OLD / run)
    assert (code, err) == (0, "")
    best = max(last["shared"], last["personal"])
    assert f"{best:.1f} %" in text
    for client in last["clients"].values():
        assert f" {client['personal']:.1f} " in text
    if run in FINISHED:
        assert shown["result"] == result(run)
    else:
        assert shown["result"] is None
        assert "2 of 4 rounds" in text


@pytest.mark.parametrize("run", LINEAR)
def test_models_answer_as_their_weights_say(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = linear_answers(personal(run, "0"), INPUTS)
    assert np.allclose(fedcap.read(OLD / run).predict("0", INPUTS), expected, atol=1e-5)
    np.savez(tmp_path / "x.npz", x=INPUTS)
    code, out, err = call(capsys, "predict", OLD / run, tmp_path / "x.npz", "--client", "0", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)["answers"]
    assert [int(each["answer"]) for each in said] == expected.argmax(axis=1).tolist()
    assert [each["confidence"] for each in said] == pytest.approx(expected.max(axis=1).tolist(), abs=1e-5)


@pytest.mark.parametrize("run", SIMULATED)
def test_exported_weights_are_those_of_the_checkpoint(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.safetensors"
    code, _, err = call(capsys, "export", OLD / run, "--client", "0", "-o", file)
    assert (code, err) == (0, "")
    saved = load_file(file)
    module = fedcap.read(OLD / run).model("0")
    assert saved.keys() == module.state_dict().keys()
    flat = torch.cat([saved[name].flatten() for name, _ in module.named_parameters()])
    assert torch.equal(flat.sort().values, personal(run, "0").sort().values)  # in whatever order they lie


def test_pixels_are_prepared_as_in_the_run() -> None:
    """Its data is gone; bytes are still scaled, and the answers are those of that time."""
    run = fedcap.read(OLD / "fedavg")
    pixels = np.arange(32, dtype=np.uint8).reshape(2, 4, 4) * 8
    answers = {reading: run.predict("1", pixels, reading).numpy() for reading in ("personal", "shared")}
    expected = json.loads((OLD / "fedavg-answers.json").read_text())
    for reading, found in answers.items():
        assert np.allclose(found, expected[reading], atol=1e-4)


@pytest.mark.parametrize("directory", [*SIMULATED, "grid", "federation/operator", FEDERATED])
def test_report_finds_nothing_wrong(
    directory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "report.html"
    code, out, err = call(capsys, "report", OLD / directory, "-o", page, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["problems"] == []
    assert page.stat().st_size == json.loads(out)["bytes"]


def test_a_stopped_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(OLD / "stopped", run)
    code, _, err = call(capsys, "run", "--resume", run, "--workers", 1)
    assert (code, err) == (0, "")
    found = fedcap.read(run)
    assert found.result is not None
    assert found.result.rounds == 4
    before = (OLD / "stopped" / "rounds.jsonl").read_text()
    assert (run / "rounds.jsonl").read_text().startswith(before)


@pytest.mark.parametrize("name", ["fedcap", "hardened"])
def test_a_finished_run_is_known_and_can_be_extended(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(OLD / name, run)
    again = ["run", "--resume", run, "--workers", 1, "--json"]
    code, out, err = call(capsys, *again)
    assert code == 0
    assert err.startswith(f"fedcap: {run} has finished before, and nothing was run")
    assert json.loads(out)["tacc"] == result(name)["tacc"]
    code, out, err = call(capsys, *again, "--rounds", 4)
    assert (code, err) == (0, "")
    assert json.loads(out)["rounds"] == 4
    assert (run / "rounds.jsonl").read_text().startswith((OLD / name / "rounds.jsonl").read_text())


def test_a_grids_runs_are_found_and_none_is_played_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = tmp_path / "grid"
    shutil.copytree(OLD / "grid", grid)
    common = ["malicious=0.3", "participation=0.8", "dataset.clients=6", "dataset.samples=20"]
    common += ["training.lr=0.1", "training.epochs=1", "model=old_network:linear"]
    settings = [word for setting in common for word in ("--set", setting)]
    axes = ["--method=fedavg,fedcap", "--attack=none,ipm", "--seed=0-1", "--rounds=2"]
    code, out, err = call(capsys, "compare", *axes, *settings, "--out", grid, "--dry-run", "--json")
    assert (code, err) == (0, "")
    assert [run["state"] for run in json.loads(out)["runs"]] == ["done"] * 8
    code, _, err = call(capsys, "compare", *axes, *settings, "--out", grid, "--quiet")
    assert (code, err) == (0, "")
    kept, now = (list(csv.DictReader((path / "results.csv").open())) for path in (OLD / "grid", grid))
    assert [{name: row[name] for name in kept[0]} for row in now] == kept


def test_a_federations_directories_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    operator, member = OLD / "federation" / "operator", OLD / "federation" / "member"
    code, out, err = call(capsys, "federate", "status", operator, "--clients", "--json")
    assert (code, err) == (0, "")
    ledger = json.loads((operator / "ledger.json").read_text())
    assert len(json.loads(out)) == 5
    assert sum("removed" in json.dumps(client) for client in json.loads(out)) == 1
    assert "removed" in json.dumps(ledger)
    for directory in (operator, member):
        assert call(capsys, "federate", "audit", directory)[::2] == (0, "")
    assert call(capsys, "federate", "status", operator)[::2] == (0, "")
    (state,) = (member / "state").glob("*/round-000003.safetensors")
    code, _, err = call(capsys, "export", member, "-o", tmp_path / "own.safetensors")
    assert (code, err) == (0, "")
    weights = load_file(tmp_path / "own.safetensors")
    flat = torch.cat([weights["1.weight"].flatten(), weights["1.bias"]])
    assert any(torch.equal(flat, tensor) for tensor in load_file(state).values() if tensor.shape == (650,))
