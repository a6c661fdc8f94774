"""README.md, CONTRIBUTING.md and the pages: snippets run, commands exist, and figures are computed.

The fixture `mine` makes the files that a reader has: patients.csv, new.npz, mine.npz, photos/, my_module.py.
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

import fedcap
from docs import computed
from fedcap.cli import app, main

ROOT = Path(__file__).parents[1]
README, GUIDE = ((ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md"))
PAGES = [path.read_text() for path in sorted((ROOT / "docs" / "pages").rglob("*.md"))]
FILES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OTHER_TOOLS = {"pip", "python"}


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def shown_commands(text: str) -> list[str]:
    """Return every command of a text: after a `$` in a console block, or between backticks."""
    lines = [line[2:] for block in blocks(text, "console") for line in block.splitlines() if line[:2] == "$ "]
    return lines + re.findall(r"`((?:fedcap|make) [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


COMMANDS = sorted({command for text in (README, GUIDE, *PAGES) for command in shown_commands(text)})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the files that snippets and commands name, in a folder."""
    there = tmp_path_factory.mktemp("files")
    draw = np.random.default_rng(0)
    y = np.arange(3100) % 62
    np.savez(there / "mine.npz", x=draw.integers(0, 255, (len(y), 28, 28), np.uint8), y=y)
    for label in "ab":
        folder = there / "photos" / label
        folder.mkdir(parents=True)
        for number in range(40):
            Image.fromarray(draw.integers(0, 255, (8, 8), np.uint8)).save(folder / f"{number}.png")
    shutil.copy(ROOT / "examples" / "own_tracker.py", there)
    (there / "my_module.py").write_text(
        "from torch import nn\n\n\ndef my_network():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(784, 62))\n\n\ndef Net():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))\n\n\n"
        "def TextNet():\n    return nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(40, 2))\n"
    )
    measured = draw.standard_normal((160, 4)) * (1, 10, 100, 1000)
    hospitals = ("oslo", "bergen", "tromsø", "bodø")
    rows = [
        ",".join(
            [f"P{place}", *map(str, row.round(3)), "ill" if row[0] > 0 else "well", hospitals[place % 4]]
        )
        for place, row in enumerate(measured)
    ]
    (there / "patients.csv").write_text(
        "\n".join(["patient,age,pulse,iron,steps,diagnosis,hospital", *rows]) + "\n"
    )
    tokens = draw.integers(0, 50, (160, 5))
    np.savez(there / "tokens.npz", x=tokens, y=(tokens[:, 0] > 24).astype(int))
    wards = [
        f"{ward},{value},{'ill' if value > 0 else 'well'}"
        for ward, value in zip(
            ("surgery", "children", "emergency", "other") * 40, measured[:, 0], strict=True
        )
    ]
    (there / "wards.csv").write_text("\n".join(["ward,pulse,diagnosis", *wards]) + "\n")
    np.savez(there / "new.npz", x=measured[:7].astype(np.float32))
    (there / "new.csv").write_text(
        "\n".join(
            row.rpartition(",")[0].rpartition(",")[0] for row in ["patient,age,pulse,iron,steps,,", *rows[:7]]
        )
    )
    for name, text in FILES.items():
        (there / name).write_text(text)
    for name in ("experiment.toml", "config.toml"):
        (there / name).write_text("rounds = 1\n")
    return there


@pytest.fixture
def mine(files: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy these files into the current directory."""
    shutil.copytree(files, Path.cwd(), dirs_exist_ok=True)
    monkeypatch.syspath_prepend(Path.cwd())


def succeed(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert not stop.value.code


def parse(arguments: list[str]) -> None:
    """Parse a command like the command line, and do not run it."""
    command: click.Command = typer.main.get_command(app)
    while isinstance(command, click.Group):
        group = command
        context = group.make_context("fedcap", arguments)
        _, found, arguments = group.resolve_command(context, arguments)
        assert found is not None
        command = found
    command.make_context("fedcap", arguments)


def test_the_first_screen_has_the_demo_and_the_tests() -> None:
    first = README[: README.index("## ")]
    assert re.findall(r"^\$ (make \w+)", first, re.MULTILINE) == ["make demo", "make test"]


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    names: dict[str, Any] = {}
    snippets = blocks(README, "python")
    for snippet in snippets:
        exec(compile(snippet.replace("rounds=30", "rounds=2"), "README.md", "exec"), names)
    assert snippets
    assert not names["model"].training


@pytest.mark.usefixtures("mine")
def test_the_commands_on_own_data_lead_to_predictions() -> None:
    block = next(block for block in blocks(README, "console") if "patients.csv" in block)
    lines = [shlex.split(line[2:], comments=True)[1:] for line in block.splitlines()]
    commands = [line for line in lines if {"patients.csv", "hospitals"} & set(line)]
    assert [command[0] for command in commands] == ["data", "run", "predict"]
    commands[1] += ["--rounds=12", "--workers=1", "--set=training.lr=0.1"]
    for command in commands:
        succeed(command)
    assert len(Path("answers.csv").read_text().splitlines()) == 8


@pytest.mark.parametrize("snippet", [snippet for page in PAGES for snippet in blocks(page, "toml")])
@pytest.mark.usefixtures("mine")
def test_the_toml_of_the_pages_runs(snippet: str) -> None:
    Path("snippet.toml").write_text(snippet)
    succeed(["run", "snippet.toml", "--rounds", "1", "--workers", "1"])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("mine", "restored_registries")
def test_a_shown_command_exists(command: str) -> None:
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
            folder = arguments[arguments.index("--resume") + 1]
            succeed(["run", "--attack", "lie", "--rounds", "1", "--workers", "1", "--out", folder])
        succeed([*arguments, "--dry-run"])


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_to_files_are_not_broken(name: str) -> None:
    targets = re.findall(r"\]\(([^)#:]+)[^)]*\)", (ROOT / name).read_text())
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_readmes_table_of_results_is_computed() -> None:
    assert computed.headline_table() in README, "run: python -m docs.computed"
    assert f"means over {len(computed.panel('headline').seeds)} seeds:" in README
    for text in (README, (ROOT / "docs" / "pages" / "concepts" / "choosing.md").read_text()):
        assert computed.off_digits() in " ".join(text.split())
    assert f"**Attacks**: {len(fedcap.attacks.names())}," in README


def table_rows(text: str) -> dict[str, list[str]]:
    """Return the rows of the demo's table by attack."""
    lines = re.findall(r"^\| ((?:no attack|sign-flipping|lie|min-max|ipm) \|.*) \|$", text, re.MULTILINE)
    return {attack: cells for attack, *cells in (line.split(" | ") for line in lines)}


@pytest.mark.slow
def test_the_demo_prints_the_readmes_table(tmp_path: Path) -> None:
    succeed(["demo", "-q", "--out", str(tmp_path / "demo")])
    expected = table_rows(README.partition("## Demo result")[2].partition("\n## ")[0])
    found = table_rows((tmp_path / "demo" / "report.md").read_text())
    assert expected.keys() == found.keys()
    assert len(expected) == 5
    for attack, cells in found.items():
        assert cells[4:6] == expected[attack][4:6], "malicious and honest clients removed"
        accuracies = [
            [float(cell.removesuffix(" †")) for cell in row[:4]] for row in (cells, expected[attack])
        ]
        assert accuracies[0] == pytest.approx(accuracies[1], abs=2.5), "the last bits depend on the processor"
