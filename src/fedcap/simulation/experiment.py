"""An experiment: all settings of a run, and the run itself.

`Experiment(dataset="digits", method="fedcap", attack="ipm").run()` is all that is needed. Settings and the
arguments of `run` are checked before anything starts: a mistake is an error of one line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedcap.errors import InputError, UserCodeError, invalid
from fedcap.runs import CONFIG, Result, RunDirectory
from fedcap.simulation.loop import Observer, Simulation
from fedcap.simulation.models import TrainedModels
from fedcap.simulation.recording import CheckpointRecorder, TrackerRecorder, held_settings, known_result
from fedcap.simulation.settings import Setup, explain
from fedcap.trackers import Tracker
from fedcap.training import WorkerPool, make_pool, single_thread

OBSERVER_METHODS = ("started", "round_done", "finished")
"""The methods of an observer: see `loop.Observer`."""


def check_run(out: Any, pool: Any, observers: Any) -> None:
    """Refuse what is no directory, no worker pool, or no list of observers."""
    if out is not None and not isinstance(out, str | os.PathLike | RunDirectory):
        raise InputError(
            f"out should be the path of a directory, or None to keep no records (got {out!r})",
            code="wrong-type",
        )
    if isinstance(out, str) and not out:
        raise InputError(
            "out is empty: give the path of a directory, or None to keep no records", code="bad-value"
        )
    if pool is not None and not isinstance(pool, WorkerPool):
        raise InputError(
            f"pool should be made by fedcap.simulation.make_pool, or be None (got {pool!r})",
            code="wrong-type",
        )
    if not isinstance(observers, list | tuple):
        raise InputError(f"observers should be a list, [] for none (got {observers!r})", code="wrong-type")
    for observer in observers:
        lacking = [name for name in OBSERVER_METHODS if not callable(getattr(observer, name, None))]
        if isinstance(observer, type) or (lacking and not isinstance(observer, Tracker)):
            what = "is a class, not an object" if isinstance(observer, type) else f"has no {lacking[0]}()"
            raise InputError(
                f"observer {observer!r} {what}: an observer has the methods {', '.join(OBSERVER_METHODS)}",
                code="wrong-type",
            )


class Experiment(Setup):
    """All settings of one run; `run` plays it."""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raised = error.errors()[0].get("ctx", {}).get("error")
            if isinstance(raised, UserCodeError):
                raise raised from raised.__cause__
            known = [name for name, field in type(self).model_fields.items() if not field.exclude]
            raise invalid(error, explain(error, known)) from None

    def run(
        self,
        out: Path | str | RunDirectory | None = None,
        pool: WorkerPool | None = None,
        observers: Sequence[Observer | Tracker] = (),
        extend: bool = False,
    ) -> Result:
        """Run the experiment; with `out`, keep its records and checkpoints in that directory.

        If the directory holds this run and it was interrupted, it is resumed; if it has finished, its result
        is read and returned. With `extend`, a run of fewer rounds and otherwise the same settings goes on
        to this one's number of rounds. `observers` may be trackers too: they go with those in `track`.
        """
        check_run(out, pool, observers)
        if pool is None:
            with make_pool(self.workers, self.device) as own:
                return self.run(out, own, observers, extend)
        with single_thread():  # the server's sums too: bits do not depend on how many cores there are
            if out is None:
                return self._follow(Simulation(self, pool), observers)
            directory = out if isinstance(out, RunDirectory) else RunDirectory(out)
            # An error that needs the data to show is raised before the directory is created.
            new = Simulation(self, pool) if directory.is_new else None
            with directory:
                known = known_result(directory, self, extend)
                if known is not None:
                    return replace(known, models=self._models(directory))
                simulation = new or Simulation(self, pool)
                return self._follow(simulation, [CheckpointRecorder(directory), *observers], directory.path)

    def _follow(
        self, simulation: Simulation, observers: Sequence[Observer | Tracker], directory: Path | None = None
    ) -> Result:
        """Play the run for its observers; trackers come after all others."""
        watching = [observer for observer in observers if not isinstance(observer, Tracker)]
        trackers = [observer for observer in observers if isinstance(observer, Tracker)]
        with TrackerRecorder([*self.trackers(), *trackers], directory) as followed:
            return _play(simulation, [*watching, followed], directory)

    def _models(self, directory: RunDirectory) -> TrainedModels | None:
        """Return the models of a run that has finished, as its directory keeps them."""
        facts = directory.provenance()
        if facts is None:
            return None
        return TrainedModels.saved(directory.path, facts, self.trainer, self.network)


def _play(simulation: Simulation, observers: Sequence[Observer], directory: Path | None = None) -> Result:
    for observer in observers:
        observer.started(simulation)
    while not simulation.is_finished:
        record = simulation.play()
        for observer in observers:
            observer.round_done(simulation, record)
    result = replace(simulation.result(), models=TrainedModels.of(simulation, directory))
    for observer in observers:
        observer.finished(result)
    return result


def load_experiment(
    path: Path | str,
    workers: int | None = None,
    rounds: int | None = None,
    dataset: str | None = None,
    track: Sequence[str] | None = None,
) -> Experiment:
    """Read back the experiment that a directory holds, to be resumed.

    It may have other workers and trackers, more rounds (run it with `extend`), and its data where
    `dataset` says.
    """
    settings = held_settings(path, workers, rounds, dataset, track)
    try:
        return Experiment(**settings)
    except UserCodeError:
        raise
    except InputError as error:
        raise error.prefixed(Path(path) / CONFIG) from None
