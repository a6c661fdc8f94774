"""The command line as a program: exit codes, errors of one line, narrow terminals, closed pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from helpers import call

from fedcap.cli import app
from fedcap.cli.common import HINTS, Interrupted, exit_code
from fedcap.errors import InputError, RunError, UserCodeError

FEDCAP = [sys.executable, "-m", "fedcap"]


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


@pytest.mark.parametrize("way", LEAVES, ids=words)
def test_every_command_has_json(way: tuple[str, ...]) -> None:
    assert any("--json" in option.opts for option in EVERY[way].params)


@pytest.mark.parametrize("wrong", ["--frobnicate", "run --rounds many", "rnu", "data get"])
def test_a_mistake_in_the_arguments_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    code, out, err = call(capsys, *wrong.split())
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("fedcap: ")
    assert "--help)" in err


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (InputError("bad"), 2, "bad"),
        (
            InputError("other", code="other-run", field="here"),
            2,
            "other (--out DIR, or fedcap run --resume here)",
        ),
        (InputError("where", code="missing-path", field="csv"), 2, "where (--dataset FILE.csv)"),
        (InputError("nowhere", code="missing-dataset"), 2, "nowhere"),
        (UserCodeError("theirs"), 2, "theirs (FEDCAP_DEBUG=1 prints the traceback)"),
        (RunError("bad"), 1, "bad (FEDCAP_DEBUG=1 prints the traceback)"),
        (ZeroDivisionError("a bug"), 1, "ZeroDivisionError: a bug (FEDCAP_DEBUG=1 prints the traceback)"),
        (
            FileNotFoundError(2, "No such file", "x"),
            1,
            "FileNotFoundError x: No such file (FEDCAP_DEBUG=1 prints",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (Interrupted("go on"), 130, "go on"),
    ],
)
def test_every_error_is_one_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], raised: BaseException, code: int, line: str
) -> None:
    def command() -> None:
        raise raised

    assert exit_code(command) == code
    err = capsys.readouterr().err
    assert err.startswith(f"fedcap: {line}")
    assert err.count("\n") == 1


def test_every_hint_belongs_to_a_code_of_the_library() -> None:
    package = Path(__file__).parents[1] / "src" / "fedcap"
    files = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] != "cli"]
    source = "".join(path.read_text() for path in files)
    for hint in HINTS:
        assert f'"{hint.partition(":")[0]}"' in source, hint


def test_help_does_not_import_what_is_slow() -> None:
    code = (
        "import sys; from fedcap.cli import app;"
        " print([name for name in ('torch', 'pydantic', 'numpy') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize(("arguments", "code"), [("list", 1), ("list nothing", 1)])
def test_without_stdout_a_command_fails(arguments: str, code: int) -> None:
    command = f"{sys.executable} -m fedcap {arguments} >&-"
    found = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True)
    assert (found.returncode, found.stderr) == (code, "fedcap: standard output is closed\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_stdout_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        found = subprocess.run([*FEDCAP, "list"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert found.returncode == 1
    assert found.stderr == "fedcap: cannot write to standard output: No space left on device\n"


def test_a_reader_that_leaves_early_is_silent() -> None:
    command = f"set -o pipefail; {sys.executable} -m fedcap list | true"
    found = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (found.stdout, found.stderr) == ("", "")


@pytest.mark.parametrize("arguments", ["list fedcap", "data check"])
def test_stdout_that_takes_only_ascii_gets_ascii(arguments: str) -> None:
    setting = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    found = subprocess.run([*FEDCAP, *arguments.split()], capture_output=True, env=setting)
    assert (found.returncode, found.stderr) == (0, b"")
    assert found.stdout.decode("ascii")


@pytest.mark.parametrize("columns", [40, 200])
def test_a_table_is_complete_on_any_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    from fedcap.cli.common import print_table
    from fedcap.report.tables import Table

    monkeypatch.setenv("COLUMNS", str(columns))
    names = [f"column {place}" for place in range(12)]
    print_table(
        Table(names, [[f"value-{row}-{place}" for place in range(12)] for row in range(2)], notes=["a note"])
    )
    out = capsys.readouterr().out
    for row in range(2):
        for place in range(12):
            assert f"value-{row}-{place}" in out
    assert max(map(len, out.splitlines())) <= columns
    assert "\x1b" not in out
