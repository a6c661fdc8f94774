"""All that can be read of a run's directory, be it damaged, unfinished or still being written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from fedcap.errors import InputError, plural
from fedcap.runs import (
    CONFIG,
    PROVENANCE,
    RESULT,
    Mixing,
    Provenance,
    Removal,
    Result,
    RoundRecord,
    RunDirectory,
    Settings,
    removals,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Held:
    """What a run's directory holds, as far as it can be read."""

    path: Path
    settings: Settings | None = None
    provenance: Provenance | None = None
    rounds: Sequence[RoundRecord] = ()
    """Up to the first that is missing or damaged."""
    result: Result | None = None
    troubles: Sequence[str] = field(default_factory=list)
    """What could not be read, a line each."""
    in_federation: bool = False
    """Whether it lies in the directory of a federation's operator."""
    others: Sequence[str] = ()
    """Clients that are known from elsewhere."""

    @classmethod
    def read(cls, path: Path, in_federation: bool = False) -> Held:
        """Read what can be read."""
        directory, troubles = RunDirectory(path), list[str]()

        def attempt(read: Callable[[], T | None]) -> T | None:
            try:
                return read()
            except InputError as error:
                troubles.append(str(error))
                return None

        settings = attempt(directory.settings)
        facts = attempt(directory.provenance)
        if settings and facts and facts.of(settings.digest()) is None:
            troubles.append(f"config.toml was changed since the run began: {PROVENANCE} knows another digest")
        rounds: list[RoundRecord] = []
        has_result = (path / RESULT).exists()  # before the rounds are read: the last one may be on its way
        try:
            for record in directory.each_round(facts.course if facts else None):
                rounds.append(record)
            result = directory.result(rounds) if facts and has_result else None
        except InputError as error:
            result = None
            troubles.append(f"{error} (shown are the {plural(len(rounds), 'round')} before that)")
        if rounds:
            missing = [name for name in (CONFIG, PROVENANCE) if not (path / name).exists()]
            troubles += [f"{path / name} is missing" for name in missing]
        return cls(path, settings, facts, rounds, result, troubles, in_federation)

    @cached_property
    def clients(self) -> Sequence[str]:
        """Every client's identity, also of those who are known from elsewhere alone."""
        return list(dict.fromkeys([*self.members, *self.others]))

    @cached_property
    def members(self) -> Sequence[str]:
        """The clients of the run: those it began with, then those who came later."""
        known = dict.fromkeys(self.provenance.clients if self.provenance else ())
        for record in self.rounds:
            tested = record.accuracy.clients if record.accuracy else ()
            for names in (record.participants, tested, record.refused, record.removed):
                known |= dict.fromkeys(names)
        return list(known)

    @cached_property
    def malicious(self) -> frozenset[str]:
        """Who is known to attack."""
        return frozenset(self.provenance.malicious if self.provenance else ())

    @property
    def federated(self) -> bool:
        """Whether the clients are sites of a federation: nobody knows who of them is honest."""
        return self.in_federation or (self.settings is not None and self.settings.federated)

    @cached_property
    def removed(self) -> Mapping[str, Removal]:
        """Who was removed, when and why."""
        return removals(self.rounds)

    @property
    def detects(self) -> bool:
        """Whether malicious clients are looked for."""
        if self.result is not None:
            return self.result.fpr is not None
        return any(record.limits for record in self.rounds)

    @cached_property
    def last_mixing(self) -> Mixing | None:
        """Who was mixed from whom in the last round in which models were."""
        mixed = [record.round for record in self.rounds if record.weights_entropy is not None]
        return next(iter(self.mixings(mixed[-1:])), None)

    def mixings(self, rounds: Collection[int]) -> list[Mixing]:
        """Return who was mixed from whom in these rounds, where that can be read."""
        with suppress(InputError):  # the page says that they are not there
            return RunDirectory(self.path).mixings(rounds)
        return []

    @property
    def evaluated(self) -> RoundRecord | None:
        """The last round whose accuracy was measured."""
        return next((record for record in reversed(self.rounds) if record.accuracy is not None), None)
