"""Trackers as an observer of the round loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedcap.runs import Result, RoundRecord
from fedcap.simulation.loop import Simulation
from fedcap.trackers import Tracked, Tracker, Tracking


class Followed:
    """Tells trackers of a run: `with Followed(…) as observer:`. A run that is left unfinished is ended."""

    def __init__(self, trackers: Sequence[Tracker], directory: Path | None) -> None:
        self._tracking = Tracking(trackers)
        self._directory = directory

    def __enter__(self) -> Followed:
        return self

    def __exit__(self, *_: object) -> None:
        self._tracking.end(None)

    def started(self, simulation: Simulation) -> None:
        """Tell the trackers what runs."""
        settings = simulation.experiment.settings()
        names = (settings[key]["name"] for key in ("dataset", "method", "attack"))
        name = "-".join([*names, f"seed{settings['seed']}"])
        if self._directory is not None:
            name = self._directory.absolute().name
        self._tracking.start(Tracked(name, self._directory, settings, list(simulation.history)))

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Tell the trackers of a round."""
        self._tracking.log(record)

    def finished(self, result: Result) -> None:
        """Tell the trackers the result."""
        self._tracking.end(result)
