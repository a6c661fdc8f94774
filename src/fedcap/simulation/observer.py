"""Those who watch a run from outside: progress, the directory that keeps it, trackers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fedcap.runs import Result, RoundRecord

if TYPE_CHECKING:
    from fedcap.simulation.loop import Simulation


class Observer(Protocol):
    """Watches a run from outside: progress, records, trackers."""

    def started(self, simulation: Simulation) -> None:
        """Be told that the run (re)starts."""

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Be told of each round."""

    def finished(self, result: Result) -> None:
        """Be told the result."""
