"""What a directory holds, beside an experiment that is to run in it: nothing, that very run, or another.

Two runs are the same if `Setup.digest` is. What is held is only read, never built: a run that used a GPU can
be told from another where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcap import data
from fedcap.errors import InputError
from fedcap.runs import CONFIG, Provenance, Result, RunDirectory, Settings, checked_provenance, checked_result
from fedcap.simulation.checkpoint import changed
from fedcap.simulation.setup import COMPUTES, Setup


def known_result(directory: RunDirectory, experiment: Setup, extend: bool = False) -> Result | None:
    """Return the experiment's result if the directory has it; none if it is yet to be run there.

    A directory that holds another run is refused. With `extend`, a run of fewer rounds is not another one.
    """
    held = directory.settings()
    if held is None:
        if any(not entry.name.startswith(".") for entry in directory.path.iterdir()):
            raise InputError(f"{directory.path} holds files that are not a run's: give another --out")
        directory.write_settings(experiment.settings())
        return None
    facts = checked_provenance(directory, held)
    longer = extend and experiment.rounds > held.rounds
    same = experiment.model_copy(update={"rounds": held.rounds}) if longer else experiment
    asked = Settings.model_validate(same.settings())
    if asked.digest() != held.digest():
        raise _another(directory.path, held, asked)
    if facts is not None and facts.digest != same.digest():
        _adopt(directory, facts, same)
    moved = asked.dataset.options.get("path") != held.dataset.options.get("path")
    if moved or asked.track != held.track:
        directory.write_settings(same.settings())
    return None if facts is None or longer else checked_result(directory, held, facts)


def _another(path: Path, held: Settings, asked: Settings) -> InputError:
    if held.model_copy(update={"rounds": asked.rounds}).digest() == asked.digest():
        go_on = f"extend it with fedcap run --resume {path} --rounds {asked.rounds}, or "
        return InputError(
            f"{path} holds this run with {held.rounds} rounds:"
            f" {go_on * (asked.rounds > held.rounds)}give another --out"
        )
    return InputError(
        f"{path} holds another run: give another --out, or continue that run with --resume {path}"
    )


def _adopt(directory: RunDirectory, facts: Provenance, experiment: Setup) -> None:
    """Tell why a run with the experiment's settings is another one all the same.

    If only the data's files are others, and the samples in them are the same, the run is taken for this one.
    """
    path = directory.path
    repeat = f"repeat it in a new directory: fedcap run {path / CONFIG}"
    if facts.computes != COMPUTES:
        made = facts.versions.get("fedcap", "?")
        raise InputError(
            f"{path} was run by another version of fedcap ({made}), with other results; {repeat}"
        )
    code = experiment.code()
    if edited := [name for name, digest in code.items() if facts.code.get(name) != digest]:
        raise InputError(f"{' and '.join(edited)} changed since the run in {path} began; {repeat}")
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
        raise InputError(f"{path} holds no run to resume: there is no {CONFIG} in it")
    if held.federated:
        raise InputError(
            f"{path} is a federation's: go on with fedcap federate server, in its operator's directory"
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
                f"{path} is a run of {held.rounds} rounds: it can be extended, not cut to {rounds}"
            )
        settings["rounds"] = rounds
    where = held.dataset.options.get("path")
    if dataset is not None:
        settings["dataset"] |= _moved(held, dataset)
    elif where is not None and not Path(where).exists():
        raise InputError(f"the data of {path} is no longer at {where}: say where it is with --dataset PATH")
    return settings


def _moved(held: Settings, dataset: str) -> dict[str, Any]:
    """Return where the data is now, as an option of the data set."""
    here = "path" in held.dataset.options and Path(dataset).exists()
    found = data.table({"name": held.dataset.name, "path": dataset} if here else dataset)
    if found["name"] != held.dataset.name:
        raise InputError(
            f"the run is on {held.dataset_name} ({held.dataset.name}), not on {dataset} ({found['name']}):"
            " --dataset beside --resume only says where the same data is now"
        )
    return {key: value for key, value in found.items() if key == "path"}
