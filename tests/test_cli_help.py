"""The command line as a newcomer meets it: help, dry runs, slips of the fingers, JSON from every command."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from helpers import call

from fedcap.cli import app
from fedcap.errors import plural

QUICK = ["--rounds", "1", "--workers", "1", "--set", "training.epochs=1"]


def commands(
    command: click.Command | None = None, way: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command and group, with the words that lead to it."""
    command = command or typer.main.get_command(app)
    yield way, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*way, name))


EVERY = dict(commands())
GROUPS = [way for way, command in EVERY.items() if isinstance(command, click.Group)]
LEAVES = [way for way in EVERY if way not in GROUPS]


def words(way: tuple[str, ...]) -> str:
    return " ".join(("fedcap", *way))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("way", EVERY, ids=words)
def test_help_is_plain_text_under_both_names(
    capsys: pytest.CaptureFixture[str], way: tuple[str, ...]
) -> None:
    code, out, err = call(capsys, *way, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: {words(way)} ")
    assert "\\" not in out
    assert call(capsys, *way, "-h") == (0, out, "")


@pytest.mark.parametrize("way", GROUPS, ids=words)
def test_a_group_without_a_command_is_its_help(
    capsys: pytest.CaptureFixture[str], way: tuple[str, ...]
) -> None:
    code, out, err = call(capsys, *way)
    assert (code, err) == (0, "")
    assert out == call(capsys, *way, "--help")[1]


def test_help_says_what_is_required_and_what_is_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        "Data set, FILE.csv, FILE.npz, or folder of images.  [required]"
        in call(capsys, "data", "get", "-h")[1]
    )
    assert "[default: fedcap-demo]" in " ".join(call(capsys, "demo", "-h")[1].split())
    run = " ".join(call(capsys, "run", "-h")[1].split())
    assert "differ by data set. --dry-run shows every setting" in run
    assert "30 on digits, else 100" in run


def test_the_defaults_that_help_tells_are_those_of_a_run() -> None:
    from fedcap import data
    from fedcap.simulation import Experiment

    experiment = Experiment()
    found = (experiment.dataset.name, experiment.method.name, experiment.attack.name)
    assert found == ("digits", "fedcap", "none")
    assert (experiment.malicious, experiment.seed, experiment.eval_every) == (0.3, 0, 1)
    assert experiment.device == "cpu"
    for name in data.names():
        rounds = data.registry.get(name).defaults.get("rounds", Experiment.model_fields["rounds"].default)
        assert rounds == (30 if name == "digits" else 100)


@pytest.mark.parametrize("way", LEAVES, ids=words)
def test_every_command_speaks_json(way: tuple[str, ...]) -> None:
    assert any("--json" in option.opts for option in EVERY[way].params)


@pytest.mark.parametrize("way", EVERY, ids=words)
def test_an_unknown_option_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], way: tuple[str, ...]
) -> None:
    code, out, err = call(capsys, *way, "--frobnicate")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("fedcap: No such option")
    assert f"(see {words(way)} --help)" in err


@pytest.mark.parametrize("way", GROUPS, ids=words)
def test_an_unknown_command_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], way: tuple[str, ...]
) -> None:
    code, out, err = call(capsys, *way, "frobnicate")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "No such command 'frobnicate'" in err
    assert f"(see {words(way)} --help)" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run --rounds", "'--rounds' requires an argument"),
        ("run --rounds many", "'many' is not a valid int"),
        ("run --malicious much", "'much' is not a valid float"),
        ("run a.toml b.toml", "unexpected extra argument (b.toml)"),
        ("run --round 3", "--rounds"),
        ("demo --out", "'--out' requires an argument"),
        ("demo --rounds 0", "rounds should be greater than or equal to 1"),
        ("demo --seed -1", "seed should be greater than or equal to 0"),
        ("demo --workers 0", "workers should be greater than or equal to 1"),
        ("list a b c", "unexpected extra argument"),
        ("data get", "Missing argument 'NAME'"),
        ("data get digit", "did you mean 'digits'"),
        ("data show", "Missing argument 'NAME'"),
        ("data show digits --seed x", "'x' is not a valid int"),
        ("data chekc", "'check'"),
    ],
)
def test_a_slip_of_the_fingers_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: str, said: str
) -> None:
    code, out, err = call(capsys, *arguments.split())
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("fedcap: ")
    assert said in err
    assert list(Path().iterdir()) == []


def test_a_dry_run_prints_the_settings_of_the_run_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ["--attack", "ipm", "--method", "fedavg", "--rule", "gas", "--seed", "3", *QUICK]
    code, out, err = call(capsys, "run", "--dry-run", "--out", "x", *flags)
    assert (code, err) == (0, "")
    assert list(Path().iterdir()) == []
    assert "20 clients, 6 of them malicious" in out
    assert "· 1 round\n" in out
    harmless = call(capsys, "run", "--dry-run", "--attack", "ipm", "--malicious", "0")[1]
    assert "ipm by nobody" in harmless
    assert "20 clients, none of them malicious" in harmless
    call(capsys, "run", "--out", "x", *flags)
    assert tomllib.loads(out) == tomllib.loads(Path("x/config.toml").read_text())
    provenance = json.loads(Path("x/provenance.json").read_text())
    assert f"ipm by {', '.join(provenance['malicious'])}" in out
    assert f" {provenance['weights']:,} weights" in out


def test_a_dry_run_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.toml").write_text(call(capsys, "run", "--dry-run", "--attack", "lie", *QUICK)[1])
    assert call(capsys, "run", "a.toml", "--out", "x")[0] == 0
    assert tomllib.loads(Path("x/config.toml").read_text()) == tomllib.loads(Path("a.toml").read_text())


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
    assert (found["weights"], found["rounds"]) == (provenance["weights"], 1)
    assert found["train_samples"] + found["test_samples"] <= 1797
    code, out, _ = call(capsys, "run", "--resume", "x", "--dry-run", "--json")
    assert json.loads(out) == found


def test_a_dry_run_tells_mistakes_that_show_with_the_data_or_the_network(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for wrong, said in (("dataset.clients=1000", "there are 1797"), ("method.head=hat", "no layer 'hat'")):
        code, out, err = call(capsys, "run", "--dry-run", "--method", "fedrod", "--set", wrong)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert said in err
    assert list(Path().iterdir()) == []


def test_the_json_of_a_run_names_its_directory_and_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "run", "--json", *QUICK)
    assert code == 0
    found = json.loads(out)
    (directory,) = Path("runs").iterdir()
    assert found["directory"] == str(directory)
    assert found["settings"] == tomllib.loads((directory / "config.toml").read_text())
    assert {"directory", "settings"}.isdisjoint(json.loads((directory / "result.json").read_text()))


def test_one_round_is_one_round(capsys: pytest.CaptureFixture[str]) -> None:
    assert "· 1 round in " in call(capsys, "run", *QUICK)[1]
    assert [plural(1, "round"), plural(30, "round")] == ["1 round", "30 rounds"]
    assert [plural(0, "class"), plural(1797, "sample")] == ["0 classes", "1,797 samples"]


def test_python_m_fedcap_is_the_command_line() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "fedcap", "--version"], capture_output=True, text=True, check=True
    )
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert found.stdout == f"fedcap {project['version']}\n"
    wrong = subprocess.run([sys.executable, "-m", "fedcap", "rnu"], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stderr.startswith("fedcap: No such command 'rnu'")) == (2, True)


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m fedcap list | head -1"
    found = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("methods\n", "")
