"""`fedcap run`: its summary, JSON and records, settings from files and options, dry runs, resuming."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from helpers import call

from fedcap.errors import warn_once

QUICK = ["--quiet", "--rounds", "2", "--workers", "1", "--set", "training.epochs=1"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_run_prints_a_summary_and_keeps_its_records(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "run", "--attack", "IPM", *QUICK)
    assert (code, err) == (0, "")
    assert "6 of 20 clients malicious" in out
    assert "accuracy" in out
    (directory,) = Path("runs").iterdir()
    assert directory.name.startswith("digits-fedcap-ipm-seed0-")
    assert json.loads((directory / "result.json").read_text())["rounds"] == 2


def test_json_is_the_only_output(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "run", "--method", "fedavg", "--json", "--out", "here", *QUICK)
    assert (code, err) == (0, "")
    result = json.loads(out)
    wanted = "tacc tacc_shared tacc_personal tacc_worst_client dacc fpr fnr rounds diverged seconds"
    wanted += " seconds_server bytes_per_round removed"
    assert set(wanted.split()) <= set(result)
    assert result.pop("directory") == "here"
    assert result.pop("settings") == tomllib.loads(Path("here/config.toml").read_text())
    assert result == json.loads(Path("here/result.json").read_text())


def test_options_replace_the_file_and_set_replaces_options(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.toml").write_text('rounds = 9\nseed = 3\n[method]\nname = "fedcap"\nalpha = 1.0\nphi = 0.2\n')
    extra = ["--set", "method.alpha=2", "--set", "attack.clients=[1, 5]", "--attack", "lie"]
    code, _, _ = call(capsys, "run", "a.toml", "--out", "x", *extra, *QUICK)
    assert code == 0
    config = tomllib.loads(Path("x/config.toml").read_text())
    assert (config["rounds"], config["seed"]) == (2, 3)
    assert (config["method"]["alpha"], config["method"]["phi"]) == (2, 0.2)
    assert config["attack"] == {"name": "lie", "clients": ["1", "5"], "over": "all", "correction": 0}
    assert json.loads(Path("x/provenance.json").read_text())["malicious"] == ["1", "5"]


def test_the_rule_is_an_option_and_its_options_are_settings(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--method", "ditto", "--rule", "bucketing", "--set", "method.rule.rule=rfa", "--attack", "lie"]
    code, _, err = call(capsys, "run", *flags, "--out", "x", *QUICK)
    assert (code, err) == (0, "")
    config = tomllib.loads(Path("x/config.toml").read_text())
    assert config["method"]["rule"]["name"] == "bucketing"
    assert config["method"]["rule"]["rule"]["name"] == "geometric-median"
    assert call(capsys, "run", "--resume", "x", "--json")[0] == 0


def test_a_run_that_has_finished_is_not_run_again_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    code, first, err = call(capsys, "run", "--out", "x", *QUICK)
    assert (code, err) == (0, "")
    for again in (["--out", "x", *QUICK], ["--resume", "x"]):
        code, out, err = call(capsys, "run", *again)
        assert (code, out) == (0, first)
        assert err.startswith("fedcap: x has finished before, and nothing was run")


def test_a_share_of_participants_below_one_client_is_reported(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_once.cache_clear()
    for share, warnings in (("0.05", 0), ("0.01", 1)):
        call(capsys, "run", *QUICK, "--set", f"participation={share}", "--out", share)
        found = [
            line for line in caplog.messages if line.startswith("participation = 0.01 is less than one of")
        ]
        assert len(found) == warnings


def test_an_interrupted_run_says_how_to_go_on_and_leaves_no_process(tmp_path: Path) -> None:
    import signal
    import time

    # A test run in the background ignores Ctrl-C, and so would its children.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{listen}; from fedcap.cli import main; main()"
    command = [sys.executable, "-c", code, "run", "--out", "run", "--workers", "2", "--quiet"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while not (tmp_path / "run" / "checkpoint.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.strip().splitlines() == ["fedcap: interrupted: continue with fedcap run --resume run"]
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_a_dry_run_prints_the_settings_and_writes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--attack", "ipm", "--method", "fedavg", "--rule", "gas", "--seed", "3", *QUICK]
    code, out, err = call(capsys, "run", "--dry-run", "--out", "x", *flags)
    assert (code, err) == (0, "")
    assert list(Path().iterdir()) == []
    assert "20 clients, 6 of them malicious" in out
    assert "· 2 rounds\n" in out
    harmless = call(capsys, "run", "--dry-run", "--attack", "ipm", "--malicious", "0")[1]
    assert "ipm by no client" in harmless
    assert "20 clients, none of them malicious" in harmless
    call(capsys, "run", "--out", "x", *flags)
    assert tomllib.loads(out) == tomllib.loads(Path("x/config.toml").read_text())
    provenance = json.loads(Path("x/provenance.json").read_text())
    assert f"ipm by {', '.join(provenance['malicious'])}" in out
    assert f" {provenance['weights']:,} weights" in out


def test_a_dry_run_in_json_has_settings_clients_attackers_weights_and_rounds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call(capsys, "run", "--attack", "ipm", "--out", "x", *QUICK)
    code, out, _ = call(capsys, "run", "--attack", "ipm", "--dry-run", "--json", *QUICK)
    found, provenance = json.loads(out), json.loads(Path("x/provenance.json").read_text())
    assert code == 0
    assert found["settings"] == tomllib.loads(Path("x/config.toml").read_text())
    assert found["clients"] == provenance["clients"]
    assert sorted(found["malicious"]) == sorted(provenance["malicious"])
    assert (found["weights"], found["rounds"]) == (provenance["weights"], 2)
    assert found["train_samples"] + found["test_samples"] <= 1797
    code, out, _ = call(capsys, "run", "--resume", "x", "--dry-run", "--json")
    assert json.loads(out) == found


@pytest.mark.parametrize("wrong", ["dataset.clients=1000", "method.head=hat"])
def test_a_dry_run_finds_what_is_wrong_with_the_data_or_the_network(
    capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    code, out, _ = call(capsys, "run", "--dry-run", "--method", "fedrod", "--set", wrong)
    assert (code, out) == (2, "")
    assert list(Path().iterdir()) == []
