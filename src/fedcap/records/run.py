"""A run as its directory has it, finished or not; reading it needs neither torch nor the data."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcap.errors import InputError
from fedcap.records.checks import checked_provenance, checked_result, checked_rounds
from fedcap.records.directory import CONFIG, PROVENANCE, RunDirectory
from fedcap.records.frame import all_columns, tidy_rows
from fedcap.records.mixing import Mixing
from fedcap.records.prose import describe_run
from fedcap.records.provenance import Provenance
from fedcap.records.result import ClientResult, Removal, Result, client_results, has_diverged, removals
from fedcap.records.rounds import RoundRecord
from fedcap.records.settings import Settings


@dataclass(frozen=True, repr=False)
class Run:
    """All that a run has left behind so far."""

    path: Path
    settings: Settings
    provenance: Provenance
    rounds: Sequence[RoundRecord]
    """Up to the last one whose line is whole."""
    result: Result | None
    """None if the run has not finished."""

    def __repr__(self) -> str:
        return describe_run(self)

    @property
    def evaluated(self) -> RoundRecord | None:
        """The last round whose accuracy was measured, if there is one."""
        return next((record for record in reversed(self.rounds) if record.accuracy is not None), None)

    @property
    def removed(self) -> Mapping[str, Removal]:
        """Who was removed so far, when and why."""
        return removals(self.rounds)

    @property
    def diverged(self) -> bool:
        """Whether any benign client diverged in the last round, or diverged in any round and was removed."""
        return has_diverged(self.rounds)

    @property
    def mixings(self) -> list[Mixing]:
        """Who was mixed from whom in each round that mixed models, read from disk."""
        return RunDirectory(self.path).mixings()

    @property
    def detects(self) -> bool:
        """Whether malicious clients are looked for; an unfinished run does so if its records have limits."""
        if self.result is not None:
            return self.result.fpr is not None
        return any(record.limits for record in self.rounds)

    @property
    def clients(self) -> Sequence[ClientResult]:
        """What became of each client so far, by the last round that was evaluated."""
        if self.result is not None:
            return self.result.clients
        return client_results(self.rounds, self.provenance.clients, self.provenance.malicious)

    def frame(self) -> Any:
        """Return a row for each round and client: a pandas DataFrame, or dictionaries without pandas.

        The columns are round, client, malicious, took_part, asked, shared, personal, one for each score such
        as norm, refused and removed.
        """
        rows = tidy_rows(self.rounds, self.provenance.clients, frozenset(self.provenance.malicious))
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            return rows
        return pandas.DataFrame(rows, columns=all_columns(self.rounds))


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
