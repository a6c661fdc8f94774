"""A run as its directory has it, finished or not; reading it needs neither torch nor the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedcap.records.checks import checked_provenance, checked_result, checked_rounds
from fedcap.records.directory import CONFIG, PROVENANCE, RunDirectory
from fedcap.records.provenance import Provenance
from fedcap.records.result import Result
from fedcap.records.rounds import RoundRecord
from fedcap.records.settings import Settings
from fedcap.registry import InputError


@dataclass(frozen=True)
class Run:
    """All that a run has left behind so far."""

    path: Path
    settings: Settings
    provenance: Provenance
    rounds: Sequence[RoundRecord]
    """Up to the last one whose line is whole."""
    result: Result | None
    """None if the run has not finished."""


def read(path: Path | str) -> Run:
    """Read a run's directory; if a file is missing or damaged, raise an `InputError` of one line."""
    directory = RunDirectory(path)
    settings = directory.settings()
    if settings is None:
        raise InputError(f"{path} holds no run: there is no {CONFIG} in it")
    provenance = checked_provenance(directory, settings)
    if provenance is None:
        raise InputError(f"{path} holds a run that has not started: there is no {PROVENANCE} in it")
    result = checked_result(directory, settings, provenance)
    rounds = checked_rounds(directory, settings) if result is None else result.history
    return Run(directory.path, settings, provenance, rounds, result)
