"""What clients reach alone: a run of the method `local` with the same data, to compare a run with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedcap.errors import InputError
from fedcap.report.story.held import Held
from fedcap.report.story.series import LocalCurve
from fedcap.runs import Outcome

LOCAL = "local"


@dataclass(frozen=True)
class Local:
    """A run in which every client trained alone."""

    curve: LocalCurve
    accuracy: Mapping[str, float]
    """By client, in its last evaluated round, in percent."""
    partition: str
    """The hash of who has which data."""

    @classmethod
    def of(cls, held: Held, source: str) -> Local | None:
        """Return what a run of clients alone came to; none if it was not measured."""
        measured = [(record.round, found) for record in held.rounds if (found := record.accuracy) is not None]
        if not measured or held.provenance is None:
            return None
        curve = LocalCurve(
            [number for number, _ in measured], [round(found.personal, 2) for _, found in measured], source
        )
        clients = {client: own.personal for client, own in measured[-1][1].clients.items()}
        return cls(curve, clients, held.provenance.partition_hash)

    @classmethod
    def of_outcome(cls, outcome: Outcome, source: str) -> Local:
        """Return what a run of clients alone came to, from its outcome."""
        curve = LocalCurve(outcome.curve.rounds, outcome.curve.personal, source)
        clients = {client.id: client.personal for client in outcome.clients if client.personal is not None}
        return cls(curve, clients, str(outcome.provenance.get("partition_hash", "")))


def read_local(path: Path, of: Held) -> Local:
    """Read the run to compare another with; refuse one of another method, or over other data."""
    held = Held.read(path)
    if held.settings is None or held.settings.method.name != LOCAL:
        raise InputError(f"{path} is no run of clients alone: give --local a run with --method local")
    found = Local.of(held, f"Each client alone: {path.name}.")
    if found is None:
        raise InputError(f"{path} has no accuracy yet: give --local a run that was evaluated")
    if of.provenance is not None and of.provenance.partition_hash != found.partition:
        raise InputError(
            f"{path} has other data, or deals it otherwise: --local needs the same data set and seed"
        )
    return found
