"""Recorders of a run: observers that write the run directory and send rounds to trackers.

A round's line is on disk before a checkpoint that includes it. So, whenever a run is killed, the checkpoint
and the lines up to its round are complete; a resumed run drops later lines and plays their rounds again.
`known_result` compares a directory with an experiment that is to run in it. Two runs are the same if their
digests are the same; what the directory holds is only read, never built, so that a run on a GPU can be
compared where there is none.
"""

from __future__ import annotations

import logging
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fedcap import data
from fedcap.errors import InputError
from fedcap.files import write_aside
from fedcap.names import LONGEST_LIST
from fedcap.products import chosen_products
from fedcap.runs import (
    CHECKPOINT,
    CONFIG,
    PROVENANCE,
    ROUNDS,
    History,
    Provenance,
    Result,
    RoundRecord,
    RunDirectory,
    Settings,
    checked_provenance,
    checked_result,
    digest,
)
from fedcap.runs.checkpoint import About, pack, read_checkpoint
from fedcap.simulation.inputs import Inputs
from fedcap.simulation.loop import Simulation
from fedcap.simulation.settings import COMPUTES, Setup
from fedcap.simulation.store import ROWS
from fedcap.trackers import Tracked, Tracker, Tracking

PACKAGES = ("fedcap", "torch", "numpy", "scikit-learn")


class CheckpointRecorder:
    """Writes a run's records and checkpoints, and resumes an interrupted run."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._course = ""

    def started(self, simulation: Simulation) -> None:
        """Resume an interrupted run from its last checkpoint.

        Nothing is written before all checks have passed. If the run is extended, its provenance is written
        first: it has the earlier and the new settings, so that config.toml may have either when the run is
        killed.
        """
        directory, facts = self._directory, provenance(simulation)
        self._course = facts.course
        held = directory.settings()
        known = checked_provenance(directory, held) if held else None
        if known is not None:
            self._compare(known, facts)
        simulation.store.use_directory(directory.path)
        done = self._resume(simulation)
        history = directory.rounds(done)
        if not len(history) == done == simulation.server.round:
            raise directory.damaged(
                ROUNDS,
                f"has {len(history)} rounds, the checkpoint {done}, of which the server played"
                f" {simulation.server.round}",
            )
        lines = sum(1 for _ in directory.each_line())
        if held and not done and lines >= held.checkpoint_every:
            logging.getLogger("fedcap").warning(
                "there is no %s: the run is played again from round 1", directory.checkpoint
            )
        if known is None:
            directory.write_provenance(facts)
        elif held and known.digest != facts.digest:
            directory.write_provenance(known.extend(facts, held.rounds))
            directory.write_settings(simulation.experiment.settings())
        directory.remove_result()
        directory.keep_rounds(done)
        simulation.history = history

    def _compare(self, known: Provenance, facts: Provenance) -> None:
        """Refuse to resume a run that is not the one that began."""
        for what in ("data", "partition"):
            if getattr(known, f"{what}_hash") != getattr(facts, f"{what}_hash"):
                raise changed(self._directory, what)
        for what in ("seed", "weights", "clients", "malicious", "computes", "code", "course"):
            if getattr(known, what) != getattr(facts, what):
                raise self._directory.damaged(PROVENANCE, f"is not of this run: {what} is another")

    def _resume(self, simulation: Simulation) -> int:
        """Load the last checkpoint, if there is one, and return how many rounds it covers."""
        directory = self._directory
        if not directory.checkpoint.exists():
            return 0
        about, tensors = read_checkpoint(directory, self._course)
        if about.layout != simulation.layout.digest():
            raise InputError(
                f"{directory.path} cannot be resumed: this version lays out the network's weights otherwise",
                code="other-version",
                field=str(directory.path / CONFIG),
            )
        try:
            simulation.load_state_dict(tensors)
        except InputError:
            raise
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise directory.damaged(CHECKPOINT, f"is of another version: {error!r}") from None
        return about.round

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Write the round's line and, every `checkpoint_every` rounds, a checkpoint."""
        self._directory.append(record, simulation.mixing)
        if record.round % simulation.experiment.checkpoint_every == 0 or simulation.is_finished:
            write_aside(self._directory.checkpoint, checkpoint(simulation, self._course))
            simulation.store.saved()

    def finished(self, result: Result) -> None:
        """Write the result."""
        self._directory.write_result(result)


def changed(directory: RunDirectory, what: str) -> InputError:
    """Return the error for a run whose data has changed."""
    return InputError(
        f"{directory.path} cannot be resumed: its {what} has changed; give the data that it began"
        " with, or start a new run",
        code="changed-data",
        field=what,
    )


def checkpoint(simulation: Simulation, course: str) -> bytes:
    """Return the state of the simulation, as safetensors."""
    tensors = simulation.state_dict()
    format_ = 2 if f"clients.{ROWS}" in tensors else 1
    return pack(About(simulation.round, simulation.layout.digest(), course, format_), tensors)


def provenance(simulation: Simulation) -> Provenance:
    """Return the provenance of a run."""
    experiment, data, names = simulation.experiment, simulation.data, simulation.names
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
        clients=names if len(names) > LONGEST_LIST else list(names),
        malicious=[client for client in names if client in simulation.malicious],
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


def known_result(directory: RunDirectory, experiment: Setup, extend: bool = False) -> Result | None:
    """Return the experiment's result if the directory has it; none if it is yet to be run there.

    A directory that holds another run is refused. With `extend`, a run of fewer rounds is not another one.
    """
    held = directory.settings()
    if held is None:
        if any(not entry.name.startswith(".") for entry in directory.path.iterdir()):
            raise InputError(
                f"{directory.path} holds files that are not a run's: give another directory",
                code="not-a-run",
                field=str(directory.path),
            )
        directory.write_settings(experiment.settings())
        return None
    facts = checked_provenance(directory, held)
    longer = extend and experiment.rounds > held.rounds
    same = experiment.model_copy(update={"rounds": held.rounds}) if longer else experiment
    asked = Settings.model_validate(same.settings())
    if asked.digest() != held.digest():
        raise _another(directory.path, held, asked)
    if facts is not None and facts.digest != same.digest():
        _accept(directory, facts, same)
    moved = asked.dataset.options.get("path") != held.dataset.options.get("path")
    if moved or asked.track != held.track:
        directory.write_settings(same.settings())
    return None if facts is None or longer else checked_result(directory, held, facts)


def _another(path: Path, held: Settings, asked: Settings) -> InputError:
    if held.model_copy(update={"rounds": asked.rounds}).digest() == asked.digest():
        longer = asked.rounds > held.rounds
        return InputError(
            f"{path} holds this run with {held.rounds} rounds, not {asked.rounds}:"
            f" {'extend it, or ' * longer}give another directory",
            code="shorter-run" if longer else "longer-run",
            field=str(path),
        )
    return InputError(
        f"{path} holds another run: give another directory, or continue that run",
        code="other-run",
        field=str(path),
    )


def _accept(directory: RunDirectory, facts: Provenance, experiment: Setup) -> None:
    """Refuse a run with the experiment's settings that is another run nevertheless, and say why.

    If only the data's files differ, and the samples in them are the same, the run is accepted as this one.
    """
    path = directory.path
    repeat = "repeat it in a new directory"
    if facts.computes != COMPUTES:
        made = facts.versions.get("fedcap", "?")
        raise InputError(
            f"{path} was run by another version of fedcap ({made}), with other results; {repeat}",
            code="other-version",
            field=str(path / CONFIG),
        )
    code = experiment.code()
    if edited := [name for name, digest in code.items() if facts.code.get(name) != digest]:
        raise InputError(
            f"{' and '.join(edited)} changed since the run in {path} began; {repeat}",
            code="changed-code",
            field=str(path / CONFIG),
        )
    dealt = experiment.load_data()
    for what in ("data", "partition"):
        if getattr(dealt, f"{what}_hash") != getattr(facts, f"{what}_hash"):
            raise changed(directory, what)
    directory.write_provenance(replace(facts, digest=experiment.digest()))


def held_settings(
    path: Path | str,
    workers: int | None = None,
    rounds: int | None = None,
    dataset: str | None = None,
    track: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the settings of the run in a directory, to be resumed.

    It may go on with other workers and trackers, to more rounds, and with its data moved to where `dataset`
    says.
    """
    directory = RunDirectory(path)
    held = directory.settings()
    if held is None:
        raise InputError(
            f"{path} holds no run to resume: there is no {CONFIG} in it", code="no-run", field=str(path)
        )
    if held.federated:
        raise InputError(
            f"{path} is a federation's: its server continues it",
            code="federation-run",
            field=str(Path(path).parent),
        )
    checked_provenance(directory, held)
    settings = held.model_dump()
    if workers is not None:
        settings["workers"] = workers
    if track is not None:
        settings["track"] = track
    if rounds is not None:
        if rounds < held.rounds:
            raise InputError(
                f"{path} is a run of {held.rounds} rounds: it can be extended, not cut to {rounds}",
                code="bad-value",
                field="rounds",
            )
        settings["rounds"] = rounds
    where = held.dataset.options.get("path")
    if dataset is not None:
        settings["dataset"] |= _moved(held, dataset)
    elif where is not None and not Path(where).exists():
        raise InputError(
            f"the data of {path} is no longer at {where}: give its new place",
            code="moved-data",
            field="dataset",
        )
    return settings


def _moved(held: Settings, dataset: str) -> dict[str, Any]:
    """Return where the data is now, as an option of the data set."""
    here = "path" in held.dataset.options and Path(dataset).exists()
    found = data.table({"name": held.dataset.name, "path": dataset} if here else dataset)
    if found["name"] != held.dataset.name:
        raise InputError(
            f"the run is on {held.dataset_name} ({held.dataset.name}), not on {dataset} ({found['name']}):"
            " a resumed run takes only the new place of the same data",
            code="other-data",
            field="dataset",
        )
    return {key: value for key, value in found.items() if key == "path"}


class TrackerRecorder:
    """Sends a run to its trackers: `with TrackerRecorder(…) as observer:`. An unfinished run is ended."""

    def __init__(self, trackers: Sequence[Tracker], directory: Path | None) -> None:
        self._tracking = Tracking(trackers)
        self._directory = directory

    def __enter__(self) -> TrackerRecorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._tracking.end(None)

    def started(self, simulation: Simulation) -> None:
        """Start the trackers."""
        settings = simulation.experiment.settings()
        names = (settings[key]["name"] for key in ("dataset", "method", "attack"))
        name = "-".join([*names, f"seed{settings['seed']}"])
        if self._directory is not None:
            name = self._directory.absolute().name
        self._tracking.start(Tracked(name, self._directory, settings, History(simulation.history)))

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Send a round to the trackers."""
        self._tracking.log(record)

    def finished(self, result: Result) -> None:
        """Send the result to the trackers."""
        self._tracking.end(result)
