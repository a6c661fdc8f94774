"""The observer that keeps a run on disk: its settings, provenance, rounds, checkpoints and result.

A round's line is on disk before a checkpoint that includes it. So, whenever a run is killed, the checkpoint
and the lines up to its round are complete; a resumed run drops later lines and plays their rounds again.
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from importlib.metadata import version

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from fedcap.files import write_aside
from fedcap.records import ROUNDS, Provenance, Result, RoundRecord, RunDirectory
from fedcap.registry import InputError
from fedcap.simulation.loop import Simulation
from fedcap.simulation.preparation import Inputs

PACKAGES = ("fedcap", "torch", "numpy", "scikit-learn")


class Keeper:
    """Keeps a run's records and checkpoints, and puts an interrupted run back where it stood."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory

    def started(self, simulation: Simulation) -> None:
        """Put an interrupted run back where its last checkpoint left it."""
        path, facts = self._directory.path, provenance(simulation)
        known = self._directory.provenance()
        if known is None:
            self._directory.write_provenance(facts)
        else:
            for what in ("data", "partition"):
                if getattr(known, f"{what}_hash") != getattr(facts, f"{what}_hash"):
                    raise InputError(f"{path} cannot be resumed: its {what} has changed")
        done = self._restore(simulation)
        lines = self._directory.lines()
        if len(lines) < done:
            raise InputError(
                f"{path} cannot be resumed: {ROUNDS} has {len(lines)} rounds, the checkpoint {done}"
            )
        self._directory.rewrite_rounds(lines[:done])
        simulation.history[:] = self._directory.rounds()

    def _restore(self, simulation: Simulation) -> int:
        """Load the last checkpoint, if there is one, and return how many rounds it covers."""
        if not self._directory.checkpoint.exists():
            return 0
        with safe_open(self._directory.checkpoint, framework="pt") as file:
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = json.loads(file.metadata()["run"])
        if about["layout"] != simulation.layout.digest():
            raise InputError(
                f"{self._directory.path} cannot be resumed: this version lays out the network's weights"
                " otherwise"
            )
        simulation.restore(tensors)
        return int(about["round"])

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Write the round's line, then, every so often, a checkpoint."""
        self._directory.append(record)
        if record.round % simulation.experiment.checkpoint_every == 0 or simulation.finished:
            write_aside(self._directory.checkpoint, checkpoint(simulation))

    def finished(self, result: Result) -> None:
        """Write the result."""
        self._directory.write_result(result)


def checkpoint(simulation: Simulation) -> bytes:
    """Return all that must outlive the process, as safetensors."""
    plain = {
        name: tensor.detach().cpu().contiguous().clone() for name, tensor in simulation.tensors().items()
    }
    about = {"round": simulation.round, "layout": simulation.layout.digest()}
    return save(plain, metadata={"run": json.dumps(about)})  # one entry: several would have no fixed order


def provenance(simulation: Simulation) -> Provenance:
    """Return the provenance of a run."""
    experiment = simulation.experiment
    return Provenance(
        versions={
            **{package: version(package) for package in PACKAGES},
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        threads=torch.get_num_threads(),
        seed=experiment.seed,
        digest=experiment.digest(),
        data_hash=simulation.data.data_hash,
        partition_hash=simulation.data.partition_hash,
        weights=simulation.layout.size,
        clients=simulation.names,
        malicious=[client for client in simulation.names if client in simulation.malicious],
        **asdict(Inputs.of(simulation.data)),
    )
