"""Trackers of a federation: the same ones that follow a simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fedcap.federation.conductor import Conductor
from fedcap.runs import RunDirectory
from fedcap.trackers import Tracked, Tracker, Tracking


@contextmanager
def followed(
    conductor: Conductor, run: Path, trackers: Sequence[Tracker]
) -> Iterator[Callable[[Conductor], None]]:
    """Yield what `Conductor.run` is to call between rounds, so that trackers are told of each.

    `run` is the run's directory. When the block ends they are told the result, or that there is none yet.
    """
    directory, tracking = RunDirectory(run), Tracking(trackers)
    settings = directory.settings()
    told = len(conductor.history)
    plain = {} if settings is None else settings.model_dump(exclude_none=True)
    tracking.start(Tracked(conductor.plan.name, directory.path, plain, list(conductor.history)))

    def tell(conductor: Conductor) -> None:
        nonlocal told
        for record in conductor.history[told:]:
            tracking.log(record)
        told = len(conductor.history)

    try:
        yield tell
        tracking.end(directory.result())
    finally:
        tracking.end(None)
