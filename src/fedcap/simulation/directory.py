"""A run's directory: config.toml, provenance.json, rounds.jsonl, checkpoint.safetensors, result.json.

Every file is written aside and renamed, but rounds.jsonl, which grows by a line per round. A round's
line is on disk before a checkpoint that includes it, so whatever moment a run was killed at, the
checkpoint and the lines up to its round are whole; later lines are dropped and played again.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Self

import torch
from safetensors import safe_open
from safetensors.torch import save

from fedcap.registry import InputError
from fedcap.simulation.experiment import Experiment, read_toml
from fedcap.simulation.loop import Simulation
from fedcap.simulation.record import Result, RoundRecord
from fedcap.simulation.toml import to_toml

CONFIG, PROVENANCE, ROUNDS = "config.toml", "provenance.json", "rounds.jsonl"
CHECKPOINT, RESULT = "checkpoint.safetensors", "result.json"
PACKAGES = ("fedcap", "torch", "numpy", "scikit-learn")
FREE_TO_CHANGE = ("workers",)
"""Settings that a resumed run may have other than when it began: no result depends on them."""


def write_aside(path: Path, content: bytes) -> None:
    """Write a file so that, whatever happens, its path holds the old content or the new."""
    aside = path.with_name(f".{path.name}.partial")
    with open(aside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


class RunDirectory:
    """Keeps a run's records and checkpoints, and puts an interrupted run back where it stood."""

    def __init__(self, path: Path, experiment: Experiment) -> None:
        self.path = path
        self._experiment = experiment
        self._lock: IO[str] | None = None

    def __enter__(self) -> Self:
        """Claim the directory: for this experiment, and for this process alone."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / ".lock", "w")
        except OSError as error:
            raise InputError(f"cannot write to {self.path}: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise InputError(f"another process is running in {self.path}") from None
        if not (self.path / CONFIG).exists():
            write_aside(self.path / CONFIG, to_toml(self._experiment.settings()).encode())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._lock is not None
        self._lock.close()

    def started(self, simulation: Simulation) -> None:
        """Put an interrupted run back where its last checkpoint left it."""
        provenance = self.path / PROVENANCE
        facts = _provenance(simulation)
        if provenance.exists():
            known = json.loads(provenance.read_text())
            for key in ("data_hash", "partition_hash"):
                if known[key] != facts[key]:
                    raise InputError(
                        f"{self.path} cannot be resumed: its {key.removesuffix('_hash')} has changed"
                    )
        else:
            write_aside(provenance, json.dumps(facts, indent=2).encode())
        done = self._restore(simulation)
        lines = self._lines()
        if len(lines) < done:
            raise InputError(
                f"{self.path} cannot be resumed: {ROUNDS} has {len(lines)} rounds, the checkpoint {done}"
            )
        lines = lines[:done]
        simulation.history[:] = [RoundRecord.from_json(line) for line in lines]
        write_aside(self.path / ROUNDS, "".join(line + "\n" for line in lines).encode())

    def _lines(self) -> list[str]:
        rounds = self.path / ROUNDS
        return rounds.read_text().splitlines() if rounds.exists() else []

    def _restore(self, simulation: Simulation) -> int:
        """Load the last checkpoint, if there is one, and return how many rounds it has seen."""
        checkpoint = self.path / CHECKPOINT
        if not checkpoint.exists():
            return 0
        with safe_open(checkpoint, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = json.loads(file.metadata()["run"])
        if metadata["layout"] != simulation.layout.digest():
            raise InputError(
                f"{self.path} cannot be resumed: this version lays out the network's weights otherwise"
            )
        simulation.personal.copy_(tensors["personal"])
        simulation.has_trained.copy_(tensors["has_trained"])
        simulation.server.restore(tensors)
        return int(metadata["round"])

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Write the round's line, then, every so often, a checkpoint."""
        with open(self.path / ROUNDS, "a") as file:
            file.write(record.to_json() + "\n")
            file.flush()
            os.fsync(file.fileno())
        if record.round % simulation.experiment.checkpoint_every == 0 or simulation.finished:
            write_aside(self.path / CHECKPOINT, _checkpoint(simulation))

    def finished(self, result: Result) -> None:
        """Write the result."""
        write_aside(self.path / RESULT, result.to_json().encode())


def examine(path: Path, experiment: Experiment) -> Result | None:
    """Return the result of this experiment if the directory has it; refuse one that holds anything else."""
    if not path.exists():
        return None
    if not path.is_dir():
        raise InputError(f"{path} is a file: give another --out")
    if (path / CONFIG).exists():
        if _identity(load_experiment(path).settings()) != _identity(experiment.settings()):
            raise InputError(
                f"{path} holds another run: give another --out, or continue that run with --resume {path}"
            )
        return load_result(path) if (path / RESULT).exists() else None
    if any(not entry.name.startswith(".") for entry in path.iterdir()):
        raise InputError(f"{path} holds files that are not a run's: give another --out")
    return None


def load_result(path: Path | str) -> Result:
    """Read a finished run's result and records back from its directory."""
    path = Path(path)
    try:
        rounds = (path / ROUNDS).read_text().splitlines()
        return Result.from_json((path / RESULT).read_text(), [RoundRecord.from_json(line) for line in rounds])
    except FileNotFoundError:
        raise InputError(f"{path} holds no finished run") from None


def load_experiment(path: Path | str, workers: int | None = None) -> Experiment:
    """Read back the experiment that a directory holds, to be run with that many workers."""
    path = Path(path)
    if not (path / CONFIG).exists():
        raise InputError(f"{path} holds no run to resume: there is no {CONFIG} in it")
    changed = {} if workers is None else {"workers": workers}
    return Experiment(**read_toml(path / CONFIG) | changed)


def _identity(settings: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in settings.items() if key not in FREE_TO_CHANGE}
    return json.loads(json.dumps(kept))  # type: ignore[no-any-return]


def _checkpoint(simulation: Simulation) -> bytes:
    own = {"personal": simulation.personal, "has_trained": simulation.has_trained}
    tensors = {**simulation.server.tensors(), **own}
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    about = {"round": simulation.round, "layout": simulation.layout.digest()}
    return save(plain, metadata={"run": json.dumps(about)})  # one entry: safetensors keeps no order


def _provenance(simulation: Simulation) -> dict[str, Any]:
    return {
        "versions": {
            **{package: version(package) for package in PACKAGES},
            "python": platform.python_version(),
            "platform": platform.platform(),
            "threads": torch.get_num_threads(),
        },
        "seed": simulation.experiment.seed,
        "data_hash": simulation.data.data_hash,
        "partition_hash": simulation.data.partition_hash,
        "weights": simulation.layout.size,
        "clients": len(simulation.data),
        "malicious": sorted(simulation.malicious),
    }
