"""Attacks without malicious clients, and attacks whose rows are all rejected, are reported."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import refused

import fedcap
from fedcap.cli import main
from fedcap.runs import absent_attack

QUICK = ("--rounds=2", "--workers=1", "--set", "training.epochs=1")
FEW: dict[str, Any] = {"rounds": 1, "training": {"epochs": 1}, "workers": 1}


@pytest.fixture
def fedcap_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[str, str]:
        with pytest.raises(SystemExit) as stop:
            main(["run", *arguments, *QUICK])
        assert not stop.value.code
        return capsys.readouterr()

    return run


def test_a_share_without_any_malicious_client_is_reported(
    fedcap_run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    said = "attack ipm, but no client is malicious: "
    said += "a share of 0.01 of 20 clients is 0; set malicious to 0.05 or more"
    with caplog.at_level(logging.WARNING, "fedcap"):
        out, _ = fedcap_run("--attack", "ipm", "--malicious", "0.01")
    assert [record.message for record in caplog.records] == [said]
    assert f"  note       {said}" in out
    with caplog.at_level(logging.WARNING, "fedcap"):
        caplog.clear()
        out, _ = fedcap_run("--attack", "ipm", "--malicious", "0.05")
    assert "1 of 20 clients malicious" in out
    assert not caplog.records


@pytest.mark.parametrize("clients", [3, 4, 7, 9, 10, 11, 20, 37, 99, 100, 101, 343, 1000, 2377])
def test_the_suggested_share_is_just_enough(clients: int) -> None:
    found = re.search(r"malicious to ([\d.]+) or more", absent_attack("ipm", 0.0, clients))
    assert found is not None
    least = float(found[1])
    assert int(least * clients + 1e-9) == 1  # as `Setup.attackers` counts
    assert least < 0.5
    assert least * clients < 1.1


def test_too_few_clients_and_an_empty_list_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fedcap"):
        fedcap.Experiment(
            attack="ipm", dataset={"name": "digits", "partition": "iid", "clients": 2}, **FEW
        ).run()
        fedcap.Experiment(attack={"name": "ipm", "clients": []}, **FEW).run()
    assert [record.message for record in caplog.records] == [
        "attack ipm, but no client is malicious: 2 clients are too few for a malicious one",
        "attack ipm, but no client is malicious: attack.clients names no client",
    ]


def test_a_share_without_an_attack_is_reported(fedcap_run: Any, tmp_path: Path) -> None:
    said = "fedcap: --malicious 0.2 has no effect without an attack (--attack NAME)\n"
    assert fedcap_run("--malicious", "0.2")[1] == said
    assert fedcap_run("--malicious", "0.2", "--attack", "ipm")[1] == ""
    assert fedcap_run("--malicious", "0")[1] == ""
    assert fedcap_run()[1] == ""
    (tmp_path / "experiment.toml").write_text('attack = "ipm"\n')
    assert fedcap_run("experiment.toml", "--malicious", "0.2")[1] == ""


@pytest.mark.parametrize(
    ("method", "form", "why"),
    [
        ("fedavg", "nan", "not finite"),
        ("fedavg", "text", "not a tensor but str"),
        ("fedcap", "text", "not a tensor but str"),
    ],
)
def test_updates_rejected_in_all_rounds_are_reported(
    fedcap_run: Any, method: str, form: str, why: str
) -> None:
    out, _ = fedcap_run("--method", method, "--attack", "malformed", "--set", f"attack.form={form}")
    assert f"  refused    6 attackers' updates were refused in every round: {why}\n" in out
    assert "0 of 6" not in out
    assert ("  detection  no honest clients removed" in out) == (method == "fedcap")


# --- The word "nan"


def test_a_word_that_toml_reads_as_a_number_is_the_word_where_one_is_asked_for(tmp_path: Path) -> None:
    experiment = fedcap.Experiment(attack={"name": "malformed", "form": float("nan")})
    assert experiment.adversary == fedcap.attacks.make("malformed", form="nan")
    for value in ("nan", "inf", "-inf"):
        with refused("bad-value"):
            fedcap.attacks.make("ipm", epsilon=float(value))
    with refused("bad-value"):
        fedcap.attacks.make("malformed", form=float("inf"))
    with refused("unknown-name"):
        fedcap.methods.make("fedavg", rule=float("nan"))


# --- Clients' names from the data


def test_clients_are_called_by_their_own_names(fedcap_run: Any, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    owners = np.array([f"u{k:02}" for k in range(5)])[np.arange(100) % 5]
    x = generator.normal(size=(100, 4)) * np.where(owners == "u03", 1000, 1)[:, None]
    np.savez(tmp_path / "mine.npz", x=x.astype(np.float32), y=np.arange(100) % 2, client=owners)
    arguments = ("--dataset", "mine.npz", "--attack", "ipm", "--set", "attack.clients=['u01']")
    arguments += ("--set", "training.lr=0.01")
    out, _ = fedcap_run(*arguments, "--out", "run")
    assert "removed    honest: u03 in round 1 (norm " in out
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert [client["id"] for client in result["clients"]] == ["u00", "u01", "u02", "u03", "u04"]
    assert "u03" in result["removed"]
    first = json.loads((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()[0])
    assert first["participants"] == ["u00", "u01", "u02", "u03", "u04"]
