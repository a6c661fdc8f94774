"""The command line: every command, its JSON, its exit codes, and one clear line for every mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from helpers import call

from fedcap.cli.errors import Interrupted, exit_code

QUICK = ["--rounds", "2", "--workers", "1", "--set", "training.epochs=1"]


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


def test_run_speaks_json_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "run", "--method", "fedavg", "--json", "--out", "here", *QUICK)
    assert (code, err) == (0, "")
    result = json.loads(out)
    wanted = "tacc tacc_shared tacc_personal tacc_worst_client dacc fpr fnr rounds diverged seconds"
    wanted += " seconds_server bytes_per_round removed"
    assert set(wanted.split()) <= set(result)
    assert (result.pop("directory"), result.pop("settings")["method"]["name"]) == ("here", "fedavg")
    assert result == json.loads(Path("here/result.json").read_text())


def test_settings_come_from_file_then_flags_then_set(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.toml").write_text('rounds = 9\nseed = 3\n[method]\nname = "fedcap"\nalpha = 1.0\nphi = 0.2\n')
    extra = ["--set", "method.alpha=2", "--set", "attack.clients=[1, 5]", "--attack", "lie"]
    code, _, _ = call(capsys, "run", "a.toml", "--out", "x", *extra, *QUICK)
    assert code == 0
    import tomllib

    config = tomllib.loads(Path("x/config.toml").read_text())
    assert (config["rounds"], config["seed"]) == (2, 3)
    assert (config["method"]["alpha"], config["method"]["phi"]) == (2, 0.2)
    assert config["attack"] == {"name": "lie", "clients": ["1", "5"], "over": "all", "correction": 0}
    assert json.loads(Path("x/provenance.json").read_text())["malicious"] == ["1", "5"]


@pytest.mark.parametrize("method", ["fedavg", "ditto", "fedrod"])
def test_the_rule_is_a_flag_and_its_options_are_settings(
    capsys: pytest.CaptureFixture[str], method: str
) -> None:
    import tomllib

    flags = ["--method", method, "--rule", "bucketing", "--set", "method.rule.rule=rfa", "--attack", "lie"]
    code, _, err = call(capsys, "run", *flags, "--out", "x", *QUICK)
    assert (code, err) == (0, "")
    config = tomllib.loads(Path("x/config.toml").read_text())
    assert config["method"]["rule"]["name"] == "bucketing"
    assert config["method"]["rule"]["rule"]["name"] == "geometric-median"
    code, _, _ = call(capsys, "run", "--resume", "x", "--json")
    assert code == 0
    code, _, _ = call(capsys, "run", "--method", method, "--rule", "median", "--out", "y", *QUICK)
    assert code == 0


def test_a_resolved_config_runs_again_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "run", "--attack", "min-sum", "--out", "one", *QUICK)
    code, _, _ = call(capsys, "run", "one/config.toml", "--out", "two")
    assert code == 0
    one, two = (json.loads(Path(name, "result.json").read_text()) for name in ("one", "two"))
    assert one["clients"] == two["clients"]


def test_resume_continues_a_run_and_takes_no_other_settings(capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "run", "--out", "run", *QUICK)
    first = Path("run/result.json").read_text()
    Path("run/result.json").unlink()
    code, out, _ = call(capsys, "run", "--resume", "run", "--json")
    assert code == 0
    assert json.loads(first).items() <= json.loads(out).items()
    code, _, err = call(capsys, "run", "--resume", "run", "--seed", "5")
    assert code == 2
    assert "--resume continues a run as it was" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--method", "fedcup"], "did you mean 'fedcap'"),
        (["--attack", "imp"], "did you mean 'ipm'"),
        (["--dataset", "digit"], "did you mean 'digits'"),
        (["--attack", "ipm", "--malicious", "0.5"], "below 0.5"),
        (["--malicious", "-0.1"], "malicious should be greater than or equal to 0"),
        (["--rounds", "0"], "rounds should be greater than or equal to 1"),
        (["--seed", "-1"], "seed"),
        (["--set", "training.lr=-1"], "training.lr should be greater than 0"),
        (["--set", "trainning.lr=1"], "did you mean 'training'"),
        (["--set", "training.learning_rate=1"], "unknown setting 'training.learning_rate'"),
        (["--set", "method.aplha=1"], "did you mean 'alpha'"),
        (["--set", "method.alpha=high"], "alpha should be a valid number"),
        (["--set", "dataset.partition=dirichlet", "--set", "dataset.partition.beta=-1"], "beta should be"),
        (
            ["--set", "dataset.partition=pathological", "--set", "dataset.partition.classes_per_client=11"],
            "there are only 10",
        ),
        (["--set", "dataset.clients=1000"], "there are 1797"),
        (["--attack", "ipm", "--set", "attack.clients=[99]"], "names client '99'"),
        (["--attack", "ipm", "--set", "attack.clients=[0,1,2,3,4,5,6,7,8,9]"], "majority"),
        (["--attack", "ipm", "--set", "attack.epsilon=-2"], "epsilon should be greater than 0"),
        (["--method", "ditto", "--rule", "medain"], "did you mean 'median'"),
        (["--method", "fedcap", "--rule", "median"], "has no option 'rule'"),
        (["--method", "fedavg", "--rule", "gas", "--set", "method.rule.chunk=2"], "did you mean 'chunks'"),
        (["--method", "fedrod", "--set", "method.head=hat"], "the model has no layer 'hat'"),
        (["--set", "nonsense"], "KEY=VALUE"),
        (["--workers", "0"], "workers should be greater than or equal to 1"),
        (["--device", "quantum"], "'quantum' is not available"),
        (["--frobnicate"], "No such option"),
        (["missing.toml"], "cannot read missing.toml"),
        (["--resume", "nowhere"], "holds no run"),
        (["--model", "no.such:thing"], "cannot import"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, out, err = call(capsys, "run", *arguments)
    assert code == 2, err
    assert said in err
    assert err.startswith("fedcap: ")
    assert len(err.strip().splitlines()) == 1
    assert out == ""
    assert not Path("runs").exists()


def test_broken_toml_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.toml").write_text("rounds = = 3")
    code, _, err = call(capsys, "run", "bad.toml")
    assert code == 2
    assert "bad.toml is not valid TOML" in err


def test_an_out_directory_with_another_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "run", "--out", "run", *QUICK)
    code, _, err = call(capsys, "run", "--out", "run", "--seed", "1", *QUICK)
    assert code == 2
    assert "--resume run" in err


def test_list_names_everything_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "list", "--json")
    assert code == 0
    found = json.loads(out)
    assert {"fedcap", "fedavg", "local", "ditto", "fedrod", "fedfomo", "fltrust"} <= found["methods"].keys()
    assert {"mean", "krum", "multi-krum", "median", "bucketing", "gas"} <= found["aggregators"].keys()
    assert {"ipm", "lie", "min-max", "min-sum", "label-flipping"} <= found["attacks"].keys()
    assert found["detectors"]
    assert all(line.endswith((".", ")")) or line for names in found.values() for line in names.values())
    assert all(len(line) > 20 for names in found.values() for line in names.values())
    code, out, _ = call(capsys, "list")
    for names in found.values():
        for name in names:
            assert f"  {name} " in out


def test_demo_prints_one_table_and_saves_it_with_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "demo", "--rounds", "1", "--workers", "2", "--out", "tour", "-q")
    assert (code, err) == (0, "")
    assert "1 round, seed 0" in out
    for word in ("Local", "FedAvg", "FedCAP", "no attack", "ipm", "lie", "min-max", "sign-flipping"):
        assert word in out
    assert Path("tour/accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert "| ipm |" in Path("tour/report.md").read_text()
    assert "The whole story, a page for your browser: tour/report.html" in out
    assert Path("tour/report.html").read_text().startswith("<!doctype html>")
    assert len(list(Path("tour/cells").glob("*/result.json"))) == 15
    code, out, _ = call(capsys, "demo", "--rounds", "1", "--workers", "2", "--out", "tour", "--json")
    assert [row["attack"] for row in json.loads(out)] == ["none", "sign-flipping", "lie", "min-max", "ipm"]


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


@pytest.mark.parametrize(
    ("raised", "said"),
    [(KeyboardInterrupt(), "interrupted"), (click.Abort(), "interrupted"), (Interrupted("go on"), "go on")],
)
def test_an_interrupted_command_is_one_line_and_exit_code_130(
    capsys: pytest.CaptureFixture[str], raised: BaseException, said: str
) -> None:
    def command() -> None:
        raise raised

    assert exit_code(command) == 130
    assert capsys.readouterr().err == f"fedcap: {said}\n"


def test_help_does_not_import_torch() -> None:
    code = "import sys; from fedcap.cli import app; print('torch' in sys.modules, 'pydantic' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]
