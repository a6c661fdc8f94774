"""README.md and CONTRIBUTING.md: every snippet runs, and every command that they and the site show is there.

Data that a reader would have at hand is made here: patients.csv, new.npz, mine.npz, photos/, my_module.py,
and x, y, users and new.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import typer
from PIL import Image

from fedcap.cli import app, main
from fedcap.simulation import Simulation

ROOT = Path(__file__).parents[1]
README, GUIDE = ((ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md"))
FILES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OTHER_TOOLS = {"pip", "python", "python3", "cd", "git"}


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def shown(text: str) -> list[str]:
    """Return every command that a text shows: after a `$` in a console block, or between backticks."""
    lines = [line[2:] for block in blocks(text, "console") for line in block.splitlines() if line[:2] == "$ "]
    return lines + re.findall(r"`((?:fedcap|make) [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


PAGES = [path.read_text() for path in sorted((ROOT / "docs" / "pages").rglob("*.md"))]
COMMANDS = sorted({command for text in (README, GUIDE, *PAGES) for command in shown(text)})


@pytest.fixture
def mine(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A folder with all that the snippets name; return what they name in Python."""
    draw = np.random.default_rng(0)
    y = np.arange(6200) % 62
    x = draw.integers(0, 255, (len(y), 28, 28), np.uint8)
    np.savez("mine.npz", x=x, y=y)
    for label in "ab":
        folder = Path("photos", label)
        folder.mkdir(parents=True)
        for number in range(40):
            Image.fromarray(draw.integers(0, 255, (8, 8), np.uint8)).save(folder / f"{number}.png")
    shutil.copy(ROOT / "examples" / "own_tracker.py", "own_tracker.py")
    Path("my_module.py").write_text(
        "from torch import nn\n\n\ndef my_network():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(784, 62))\n\n\ndef Net():\n"
        "    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))\n"
    )
    measured = draw.standard_normal((160, 4)) * (1, 10, 100, 1000)
    hospitals = ("oslo", "bergen", "tromsø", "bodø")
    rows = [
        ",".join([*map(str, row.round(3)), "ill" if row[0] > 0 else "well", hospitals[place % 4]])
        for place, row in enumerate(measured)
    ]
    Path("patients.csv").write_text("\n".join(["age,pulse,iron,steps,diagnosis,hospital", *rows]) + "\n")
    new = measured[:7].astype(np.float32)
    np.savez("new.npz", x=new)
    for name, text in FILES.items():
        Path(name).write_text(text)
    for name in ("experiment.toml", "config.toml"):
        Path(name).write_text("rounds = 1\n")
    monkeypatch.syspath_prepend(Path.cwd())
    features = draw.standard_normal((120, 6)).astype(np.float32)
    return {"x": features, "y": np.arange(120) % 3, "users": np.arange(120) // 30, "new": new}


def succeeds(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert not stop.value.code


def parse(arguments: list[str]) -> None:
    """Parse a command as the command line would, and do not call it."""
    command: click.Command = typer.main.get_command(app)
    while isinstance(command, click.Group):
        group = command
        context = group.make_context("fedcap", arguments)
        _, found, arguments = group.resolve_command(context, arguments)
        assert found is not None
        command = found
    command.make_context("fedcap", arguments)


def test_the_python_of_the_readme_runs_in_order(
    mine: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two rounds on one core tell as much as thirty or a hundred on all.
    monkeypatch.setattr(Simulation, "is_finished", property(lambda simulation: simulation.round == 2))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    (command,) = (line for line in shown(README) if "patients.csv" in line and "--out" in line)
    succeeds([*shlex.split(command)[1:], "--rounds=2"])
    snippets = blocks(README, "python")
    assert len(snippets) >= 5
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), mine)
    assert mine["weights"].shape == (5, 5)
    assert mine["answers"].shape == (7, 2)


@pytest.mark.usefixtures("mine")
def test_from_ones_own_data_to_answers_in_four_commands(capsys: pytest.CaptureFixture[str]) -> None:
    block = next(block for block in blocks(README, "console") if "patients.csv" in block)
    commands = [shlex.split(line[2:], comments=True)[1:] for line in block.splitlines()]
    assert [command[0] for command in commands] == ["run", "show", "predict", "export"]
    commands[0] += ["--rounds=12", "--workers=1", "--set=training.lr=0.1"]
    for command in commands:
        succeeds(command)
    lines = Path("answers.csv").read_text().splitlines()
    assert len(lines) == 8
    assert Path("oslo.pt2").stat().st_size > 1000
    assert "oslo" in capsys.readouterr().out


@pytest.mark.parametrize("snippet", blocks(README, "toml") + blocks(GUIDE, "toml"))
@pytest.mark.usefixtures("mine")
def test_the_toml_of_the_readme_runs(snippet: str) -> None:
    Path("snippet.toml").write_text(snippet)
    succeeds(["run", "snippet.toml", "--rounds", "1", "--workers", "1"])


def test_the_python_of_the_guide_is_files_that_its_own_test_runs() -> None:
    assert len(blocks(GUIDE, "python")) == len(FILES)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("mine", "restored_registries")
def test_a_command_that_is_shown_is_there(command: str) -> None:
    tool, *arguments = shlex.split(command, comments=True)
    if tool == "make":
        assert set(arguments) <= TARGETS
    elif tool != "fedcap":
        assert tool in OTHER_TOOLS
    elif arguments[0] != "run":
        parse(arguments)
    else:
        extras = [name for name in ("tensorboard", "mlflow") if name in arguments]
        if missing := [name for name in extras if importlib.util.find_spec(name) is None]:
            pytest.skip(f"{missing[0]} is not installed: it is an extra")
        if "--resume" in arguments:
            there = arguments[arguments.index("--resume") + 1]
            succeeds(["run", "--attack", "lie", "--rounds", "1", "--workers", "1", "--out", there])
        succeeds([*arguments, "--dry-run"])


def test_the_two_commands_of_the_first_screen_are_enough() -> None:
    first = README[: README.index("## ")]
    assert re.findall(r"^\$ (make \w+)", first, re.MULTILINE) == ["make demo", "make test"]
    assert {"demo", "test"} <= TARGETS
