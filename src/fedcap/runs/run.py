"""The rounds of a run as tidy rows: one for each round and client.

A run as its directory has it, finished or not; reading it needs neither torch nor the data.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from fedcap.runs.rounds import RoundRecord
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from fedcap.errors import InputError
from fedcap.runs.directory import checked_provenance
from fedcap.runs.directory import checked_result
from fedcap.runs.directory import checked_rounds
from fedcap.runs.directory import CONFIG
from fedcap.runs.directory import PROVENANCE
from fedcap.runs.directory import RunDirectory
from fedcap.runs.mixing import Mixing
from fedcap.runs.result import describe_run
from fedcap.runs.provenance import Provenance
from fedcap.runs.result import ClientResult
from fedcap.runs.result import Removal
from fedcap.runs.result import Result
from fedcap.runs.result import client_results
from fedcap.runs.result import has_diverged
from fedcap.runs.result import removals
from fedcap.runs.settings import Settings

Cell = str | bool | int | float | None
COLUMNS = (
    "round",
    "client",
    "malicious",
    "took_part",
    "asked",
    "shared",
    "personal",
    "refused",
    "removed",
)
"""The columns that every run has; each score of the detectors is one more, before the last two."""


def tidy_rows(
    rounds: Sequence[RoundRecord], clients: Sequence[str], malicious: Collection[str]
) -> list[dict[str, Cell]]:
    """Return a row for each round and client.

    Accuracies are in percent, and none where a client was not tested. `refused` and `removed` say why, in
    the round in which it happened.
    """
    columns = score_columns(rounds)
    return [row for record in rounds for row in _rows(record, clients, malicious, columns)]


def score_columns(rounds: Sequence[RoundRecord]) -> dict[str, str]:
    """Return each score's column: its name, unless another column is called so."""
    names = dict.fromkeys(name for record in rounds for name in record.scores)
    return {name: f"score_{name}" if name in COLUMNS else name for name in names}


def all_columns(rounds: Sequence[RoundRecord]) -> list[str]:
    """Return all columns, in order."""
    return [*COLUMNS[:-2], *score_columns(rounds).values(), *COLUMNS[-2:]]


def _rows(
    record: RoundRecord, clients: Sequence[str], malicious: Collection[str], columns: Mapping[str, str]
) -> Iterator[dict[str, Cell]]:
    took_part, asked = set(record.participants), set(record.asked)
    for client in clients:
        tested = record.accuracy.clients.get(client) if record.accuracy is not None else None
        reason = record.removed.get(client)
        yield {
            "round": record.round,
            "client": client,
            "malicious": client in malicious,
            "took_part": client in took_part,
            "asked": client in asked,
            "shared": None if tested is None else tested.shared,
            "personal": None if tested is None else tested.personal,
            **{column: record.scores.get(name, {}).get(client) for name, column in columns.items()},
            "refused": record.refused.get(client),
            "removed": None if reason is None else str(reason),
        }


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
        raise InputError(f"{path} holds no run: there is no {CONFIG} in it", code="no-run", field=str(path))
    provenance = checked_provenance(directory, settings)
    if provenance is None:
        raise InputError(f"{path} holds a run that has not started: there is no {PROVENANCE} in it", code="no-run", field=str(path))
    result = checked_result(directory, settings, provenance)
    rounds = checked_rounds(directory, settings) if result is None else result.history
    return Run(directory.path, settings, provenance, rounds, result)
