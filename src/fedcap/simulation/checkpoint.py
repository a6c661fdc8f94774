"""The observer that keeps a run on disk: its settings, provenance, rounds, checkpoints and result.

A round's line is on disk before a checkpoint that includes it. So, whenever a run is killed, the checkpoint
and the lines up to its round are complete; a resumed run drops later lines and plays their rounds again.
"""

from __future__ import annotations

import logging
import platform
import subprocess
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from fedcap.errors import InputError
from fedcap.files import write_aside
from fedcap.products import chosen_products
from fedcap.runs import (
    CHECKPOINT,
    PROVENANCE,
    ROUNDS,
    Provenance,
    Result,
    RoundRecord,
    RunDirectory,
    Settings,
    checked_provenance,
    digest,
)
from fedcap.runs.checkpoint import About, pack, read_checkpoint
from fedcap.simulation.loop import Simulation
from fedcap.simulation.preparation import Inputs
from fedcap.simulation.setup import COMPUTES

PACKAGES = ("fedcap", "torch", "numpy", "scikit-learn")


class Keeper:
    """Keeps a run's records and checkpoints, and puts an interrupted run back where it stood."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._course = ""

    def started(self, simulation: Simulation) -> None:
        """Put an interrupted run back where its last checkpoint left it.

        Nothing is written before everything is found to be in order. If the run is being extended, its
        provenance is written first: it knows the settings of before and of now, so that config.toml may have
        either when the run is killed.
        """
        directory, facts = self._directory, provenance(simulation)
        self._course = facts.course
        held = directory.settings()
        known = checked_provenance(directory, held) if held else None
        if known is not None:
            self._compare(known, facts)
        done = self._restore(simulation)
        history = directory.rounds(done)
        if not len(history) == done == simulation.server.round:
            raise directory.damaged(
                ROUNDS,
                f"has {len(history)} rounds, the checkpoint {done}, of which the server played"
                f" {simulation.server.round}",
            )
        lines = directory.lines()
        if held and not done and len(lines) >= held.checkpoint_every:
            logging.getLogger("fedcap").warning(
                "there is no %s: the run is played again from round 1", directory.checkpoint
            )
        if known is None:
            directory.write_provenance(facts)
        elif held and known.digest != facts.digest:
            directory.write_provenance(known.extend(facts, held.rounds))
            directory.write_settings(simulation.experiment.settings())
        directory.remove_result()
        directory.rewrite_rounds(lines[:done])
        simulation.history[:] = history

    def _compare(self, known: Provenance, facts: Provenance) -> None:
        """Refuse to go on with another run than the one that began."""
        for what in ("data", "partition"):
            if getattr(known, f"{what}_hash") != getattr(facts, f"{what}_hash"):
                raise changed(self._directory, what)
        for what in ("seed", "weights", "clients", "malicious", "computes", "code", "course"):
            if getattr(known, what) != getattr(facts, what):
                raise self._directory.damaged(PROVENANCE, f"is not of this run: {what} is another")

    def _restore(self, simulation: Simulation) -> int:
        """Load the last checkpoint, if there is one, and return how many rounds it covers."""
        directory = self._directory
        if not directory.checkpoint.exists():
            return 0
        about, tensors = read_checkpoint(directory, self._course)
        if about.layout != simulation.layout.digest():
            raise InputError(
                f"{directory.path} cannot be resumed: this version lays out the network's weights otherwise"
            )
        try:
            simulation.restore(tensors)
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise directory.damaged(CHECKPOINT, f"is of another version: {error!r}") from None
        return about.round

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Write the round's line, then, every so often, a checkpoint."""
        self._directory.append(record, simulation.mixing)
        if record.round % simulation.experiment.checkpoint_every == 0 or simulation.finished:
            write_aside(self._directory.checkpoint, checkpoint(simulation, self._course))

    def finished(self, result: Result) -> None:
        """Write the result."""
        self._directory.write_result(result)


def changed(directory: RunDirectory, what: str) -> InputError:
    """Return the error for a run whose data is not what it was."""
    return InputError(
        f"{directory.path} cannot be resumed: its {what} has changed; give the data it began with"
        " (--dataset PATH, if it was moved), or start a new run"
    )


def checkpoint(simulation: Simulation, course: str) -> bytes:
    """Return all that must outlive the process, as safetensors."""
    return pack(About(simulation.round, simulation.layout.digest(), course), simulation.tensors())


def provenance(simulation: Simulation) -> Provenance:
    """Return the provenance of a run."""
    experiment, data = simulation.experiment, simulation.data
    settings, code = experiment.settings(), experiment.code()
    each_round = {key: value for key, value in settings.items() if key != "rounds"}
    decides = (str(COMPUTES), data.data_hash, data.partition_hash, *experiment.revisions())
    return Provenance(
        versions={
            **{package: version(package) for package in PACKAGES},
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        threads=torch.get_num_threads(),
        seed=experiment.seed,
        digest=experiment.digest(),
        data_hash=data.data_hash,
        partition_hash=data.partition_hash,
        weights=simulation.layout.size,
        clients=list(simulation.names),
        malicious=[client for client in simulation.names if client in simulation.malicious],
        **asdict(Inputs.of(simulation.data)),
        settings_digest=Settings.model_validate(settings).digest(),
        course=digest(each_round, *decides),
        computes=COMPUTES,
        products=chosen_products(),
        code=code,
        commit=_commit(),
    )


@cache
def _commit() -> str:
    """Return the commit of fedcap's source, with a plus if files were changed; empty without a checkout."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=+"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
