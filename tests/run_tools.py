"""What several test files share: small runs, runs killed inside a write, and comparisons of run files."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from fedcap.simulation.store import ClientStore
from fedcap.state import owned, under

SMALL: dict[str, Any] = {
    "dataset": {"name": "digits", "clients": 6, "samples": 30},
    "attack": {"name": "min-max"},
    "rounds": 3,
    "participation": 0.7,
    "training": {"lr": 0.05, "epochs": 1},
    "workers": 1,
}
"""A run of a fraction of a second."""

KILLED_AT_A_WRITE = """
import json, os, signal, sys
import fedcap

left = int(sys.argv[2])
fsync = os.fsync

def fsync_or_die(descriptor):
    global left
    left -= 1
    if left == 0:  # the power fails during the write
        os.ftruncate(descriptor, max(0, os.fstat(descriptor).st_size - 7))
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(descriptor)

os.fsync = fsync_or_die
settings = json.loads(sys.argv[3])
extend = settings.pop("extend", False)
fedcap.Experiment(**settings).run(out=sys.argv[1], extend=extend)
"""


def killed(out: Path, write: int, settings: dict[str, Any], **more: Any) -> bool:
    """Run in a process that is killed inside its nth write; return whether it was killed."""
    arguments = [str(out), str(write), json.dumps({**settings, **more})]
    code = subprocess.run([sys.executable, "-c", KILLED_AT_A_WRITE, *arguments], check=False).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


def left_behind(directory: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor], list[dict[str, Any]]]:
    """Return all that a run wrote, without times."""
    result = json.loads((directory / "result.json").read_text())
    del result["seconds"], result["seconds_server"]
    lines = (directory / "rounds.jsonl").read_text().splitlines()
    rounds = [json.loads(line) | {"seconds": None, "checksum": None} for line in lines]
    return result, saved_tensors(directory), rounds


def saved_tensors(directory: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint, with the clients' states in one form wherever they are stored."""
    tensors = load_file(directory / "checkpoint.safetensors")
    if "clients.rows" not in tensors:
        return tensors
    store = ClientStore()
    store.use_directory(directory)
    store.load_state_dict(owned("clients", tensors))
    states = [store.get(client) for client in store]
    kept = {name: torch.stack([state[name] for state in states]) for name in states[0]}
    others = {name: tensor for name, tensor in tensors.items() if not name.startswith("clients.")}
    return {**others, "clients.clients": tensors["clients.clients"], **under("clients.kept", kept)}


def assert_same(one: Path, other: Path, measured: Sequence[int] = ()) -> None:
    """Assert that two runs wrote the same; the first may have counted classes in more rounds."""
    (result, tensors, rounds), (result2, tensors2, rounds2) = left_behind(one), left_behind(other)
    for number in measured:
        rounds[number - 1]["tallies"] = None
    assert result == result2
    assert rounds == rounds2
    assert mixing_bytes(one) == mixing_bytes(other)
    assert tensors.keys() == tensors2.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, tensors2[name]), name


def mixing_bytes(run: Path) -> bytes | None:
    """Return the mixing weights as a run wrote them; None if no model was mixed."""
    path = run / "mixing.bin"
    return path.read_bytes() if path.exists() else None


def copy(run: Path, to: Path, *without: str) -> Path:
    """Copy a run's directory, without some of its files."""
    shutil.copytree(run, to, ignore=lambda *_: without)
    return to
