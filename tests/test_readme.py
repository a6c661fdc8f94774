"""README.md and CONTRIBUTING.md: every snippet runs, and every command that they show is there.

Data that a reader would have at hand is made here: mine.npz, photos/, my_module.py, and x, y and users.
"""

from __future__ import annotations

import os
import re
import shlex
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
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OTHER_TOOLS = {"pip", "python", "python3", "cd", "git"}


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def shown(text: str) -> list[str]:
    """Return every command that a text shows: after a `$` in a console block, or between backticks."""
    lines = [line[2:] for block in blocks(text, "console") for line in block.splitlines() if line[:2] == "$ "]
    return lines + re.findall(r"`((?:fedcap|make) [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


COMMANDS = sorted({*shown(README), *shown(GUIDE)})


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
    Path("my_module.py").write_text(
        "from torch import nn\n\n\ndef my_network():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(784, 62))\n"
    )
    for name, text in FILES.items():
        Path(name).write_text(text)
    for name in ("experiment.toml", "config.toml"):
        Path(name).write_text("rounds = 1\n")
    monkeypatch.syspath_prepend(Path.cwd())
    features = draw.standard_normal((120, 6)).astype(np.float32)
    return {"x": features, "y": np.arange(120) % 3, "users": np.arange(120) // 30}


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
    monkeypatch.setattr(Simulation, "finished", property(lambda simulation: simulation.round == 2))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    snippets = blocks(README, "python")
    assert len(snippets) >= 3
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), mine)
    assert mine["weights"].shape == (5, 5)


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
        if "--resume" in arguments:
            there = arguments[arguments.index("--resume") + 1]
            succeeds(["run", "--attack", "lie", "--rounds", "1", "--workers", "1", "--out", there])
        succeeds([*arguments, "--dry-run"])


def test_the_two_commands_of_the_first_screen_are_enough() -> None:
    first = README[: README.index("## ")]
    assert re.findall(r"^\$ (make \w+)", first, re.MULTILINE) == ["make demo", "make test"]
    assert {"demo", "test"} <= TARGETS
