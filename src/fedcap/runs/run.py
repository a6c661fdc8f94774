"""A run as its directory has it, finished or not: `read` returns a `Run` without torch and the data."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcap.errors import InputError, plural
from fedcap.runs.directory import (
    CONFIG,
    PROVENANCE,
    RunDirectory,
    checked_provenance,
    checked_result,
    checked_rounds,
)
from fedcap.runs.mixing import Mixing
from fedcap.runs.provenance import Provenance
from fedcap.runs.result import (
    DIVERGED,
    ClientResult,
    Removal,
    Result,
    accuracy_line,
    client_results,
    has_diverged,
    recorded_clients,
    removals,
    removed_line,
)
from fedcap.runs.rounds import RoundRecord
from fedcap.runs.settings import Settings


@dataclass(frozen=True, repr=False)
class Run:
    """The files of a run, as far as it has been played."""

    path: Path
    settings: Settings
    provenance: Provenance
    rounds: Sequence[RoundRecord]
    """The records, up to the last complete line of rounds.jsonl."""
    result: Result | None
    """None if the run has not finished."""

    def __repr__(self) -> str:
        return _describe(self)

    @property
    def evaluated(self) -> RoundRecord | None:
        """The last evaluated round, if there is one."""
        return next((record for record in reversed(self.rounds) if record.accuracy is not None), None)

    @property
    def removed(self) -> Mapping[str, Removal]:
        """The removal of each client that was removed so far, by name."""
        return removals(self.rounds)

    @property
    def diverged(self) -> bool:
        """Whether an honest client diverged in the last round, or diverged in a round and was removed."""
        return has_diverged(self.rounds)

    @property
    def mixings(self) -> list[Mixing]:
        """The weights of each round that mixed models, read from disk."""
        return RunDirectory(self.path).mixings()

    @property
    def detects(self) -> bool:
        """Whether the run looks for malicious clients. An unfinished run does if its records have limits."""
        if self.result is not None:
            return self.result.fpr is not None
        return any(record.limits for record in self.rounds)

    @property
    def clients(self) -> Sequence[ClientResult]:
        """The result of each client, with its accuracies in the last evaluated round."""
        if self.result is not None:
            return self.result.clients
        return client_results(self.rounds, self.provenance.clients, self.provenance.malicious)

    def frame(self) -> Any:
        """Return a row for each round and client: a pandas DataFrame, or dictionaries without pandas.

        The columns are round, client, malicious, took_part, asked, shared, personal, one for each score such
        as norm, refused and removed. Accuracies are in percent, and None for a client that was not evaluated.
        `refused` and `removed` have the reason, in the round of the event.
        """
        clients = recorded_clients(self.rounds, self.provenance.clients)
        malicious = frozenset(self.provenance.malicious)
        columns = _score_columns(self.rounds)
        rows = [row for record in self.rounds for row in _rows(record, clients, malicious, columns)]
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            return rows
        return pandas.DataFrame(rows, columns=list(rows[0]) if rows else _COLUMNS)


def read(path: Path | str) -> Run:
    """Read a run's directory; if a file is missing or damaged, raise an `InputError` of one line."""
    directory = RunDirectory(path)
    settings = directory.settings()
    if settings is None:
        raise InputError(f"{path} holds no run: there is no {CONFIG} in it", code="no-run", field=str(path))
    provenance = checked_provenance(directory, settings)
    if provenance is None:
        raise InputError(
            f"{path} holds a run that has not started: there is no {PROVENANCE} in it",
            code="no-run",
            field=str(path),
        )
    result = checked_result(directory, settings, provenance)
    rounds = checked_rounds(directory, settings) if result is None else result.history
    return Run(directory.path, settings, provenance, rounds, result)


def _describe(run: Run) -> str:
    """Return the run as text for a terminal or a notebook."""
    settings, attackers = run.settings, run.provenance.malicious
    clients = plural(len(run.provenance.clients), "client")
    attack = "federation" if settings.federated else "no attack"
    if attackers:
        attack = f"{settings.attack.name}, {len(attackers)} of {clients} malicious"
    played = plural(len(run.rounds), "round")
    if run.result is None:
        played = f"{len(run.rounds)} of {plural(settings.rounds, 'round')}, unfinished"
    parts = (settings.dataset_name, settings.method.name, attack, f"seed {settings.seed}", played)
    lines = [" · ".join(parts)]
    evaluated = run.evaluated
    if evaluated is None or evaluated.accuracy is None:
        lines.append("  accuracy   not measured yet")
    else:
        found = evaluated.accuracy
        when = "" if evaluated is run.rounds[-1] else f" in round {evaluated.round}"
        figures = (found.best, found.shared, found.personal, found.worst_client)
        lines.append(f"  accuracy   {accuracy_line(*figures)}{when}")
    if run.diverged:
        lines.append(f"  diverged   {DIVERGED}")
    if run.detects:
        lines.append(f"  detection  {removed_line(run.removed, attackers, settings.benign)}")
    return "\n".join([*lines, f"  records    {run.path}"])


_Cell = str | bool | int | float | None
_COLUMNS = (
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
"""The columns of every run. Each score of the detectors is a further column before the last two."""


def _score_columns(rounds: Sequence[RoundRecord]) -> dict[str, str]:
    """Return the column of each score: its name, with a prefix if another column has this name."""
    names = dict.fromkeys(name for record in rounds for name in record.scores)
    return {name: f"score_{name}" if name in _COLUMNS else name for name in names}


def _rows(
    record: RoundRecord, clients: Sequence[str], malicious: Collection[str], columns: Mapping[str, str]
) -> Iterator[dict[str, _Cell]]:
    took_part, requested = set(record.participants), set(record.asked)
    for client in clients:
        tested = record.accuracy.clients.get(client) if record.accuracy is not None else None
        reason = record.removed.get(client)
        yield {
            "round": record.round,
            "client": client,
            "malicious": client in malicious,
            "took_part": client in took_part,
            "asked": client in requested,
            "shared": None if tested is None else tested.shared,
            "personal": None if tested is None else tested.personal,
            **{column: record.scores.get(name, {}).get(client) for name, column in columns.items()},
            "refused": record.refused.get(client),
            "removed": None if reason is None else str(reason),
        }
