"""Damaged run directories: an error in one line says what to do, or the run ends with the same bits.

Every damage is done to a finished and to an unfinished run. Then the run is resumed, run again with the same
settings, and read. Whatever the answer, it is never a raw exception, and never another result.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from damage_tools import Damage, assert_error_or_same_result, damaged, two_runs
from safetensors.torch import load_file, save_file

from fedcap.runs import CHECKPOINT, CONFIG, PROVENANCE, RESULT, ROUNDS

FILES = (CONFIG, PROVENANCE, ROUNDS, CHECKPOINT, RESULT)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, and another one."""
    return two_runs(tmp_path_factory.mktemp("runs"))


def wrong_types(path: Path) -> None:
    """Write a valid file that holds something else."""
    if path.name == CHECKPOINT:
        tensors = load_file(path)
        save_file({f"my.{name}": tensor for name, tensor in tensors.items()}, path, metadata={"run": "{}"})
    elif path.name == CONFIG:
        path.write_text(path.read_text().replace("rounds = 3", 'rounds = "many"'))
    elif path.name == ROUNDS:
        path.write_text(path.read_text().replace('"participants": [', '"participants": 1, "others": ['))
    else:
        content = json.loads(path.read_text())
        path.write_text(json.dumps({key: [value] for key, value in content.items()}))


def other_keys(path: Path) -> None:
    if path.name == CHECKPOINT:
        save_file(load_file(path), path)
    elif path.name == CONFIG:
        path.write_text('colour = "red"\n')
    else:
        path.write_text('{"colour": "red"}\n')


def another_runs(path: Path) -> None:
    (path.parent.parent / "other" / path.name).replace(path)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def unreadable(path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read anything")
    path.chmod(0)


def link_to_nowhere(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


KINDS: dict[str, Damage] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b"") and None,
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "garbage": lambda path: path.write_bytes(bytes(range(256)) * 40) and None,
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)) and None,
    "wrong types": wrong_types,
    "other keys": other_keys,
    "another run's": another_runs,
    "a directory": directory,
    "unreadable": unreadable,
    "a link to nowhere": link_to_nowhere,
}
REBUILT = {
    True: {(RESULT, "missing"), (RESULT, "a link to nowhere"), *((CHECKPOINT, kind) for kind in KINDS)},
    False: {(CHECKPOINT, "missing"), (CHECKPOINT, "a link to nowhere")},
}
"""By whether the run has finished: the damage that a run repairs. Other damage is an error."""
PREFIX = {(ROUNDS, kind) for kind in ("missing", "empty", "half", "zeros", "a link to nowhere")}
"""What is left of an unfinished run's rounds can be read: its first rounds, or none."""


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "unfinished"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_reported_or_written_again(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str, finished: bool
) -> None:
    if name == RESULT and not finished and kind in ("missing", "half", "zeros", "wrong types", "unreadable"):
        pytest.skip("there is no result to damage")

    def damage(run: Path) -> None:
        path = run / name
        if not path.exists():
            path.write_text("")
        KINDS[kind](path)

    runs = damaged(home, tmp_path, finished, damage)
    goes_on = (name, kind) in REBUILT[finished] or (name, kind) == (RESULT, "a link to nowhere")
    readable = goes_on or name == CHECKPOINT or (not finished and (name, kind) in PREFIX)
    lost = name == CONFIG and kind in ("missing", "a link to nowhere")
    named = name if not lost else str(tmp_path)
    assert_error_or_same_result(home, runs, capsys, named, goes_on, readable)
