"""An experiment: all settings of a run, and the run itself.

`Experiment(dataset="digits", method="fedcap", attack="ipm").run()` is the whole of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedcap.records import CONFIG, Result, RunDirectory, identity, read_toml
from fedcap.registry import InputError, UserCodeError
from fedcap.simulation.checkpoint import Keeper
from fedcap.simulation.loop import Observer, Simulation
from fedcap.simulation.resolving import explain
from fedcap.simulation.setup import Setup
from fedcap.simulation.trained import TrainedModels
from fedcap.training import Crew, make_crew, single_thread


class Experiment(Setup):
    """All settings of one run; `run` plays it."""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raised = error.errors()[0].get("ctx", {}).get("error")
            if isinstance(raised, UserCodeError):
                raise raised from raised.__cause__
            raise InputError(explain(error, type(self).model_fields)) from None

    def run(
        self,
        out: Path | str | None = None,
        crew: Crew | None = None,
        observers: Sequence[Observer] = (),
    ) -> Result:
        """Run the experiment; with `out`, keep its records and checkpoints in that directory.

        If the directory holds this run and it was interrupted, it is resumed; if it has finished, its result
        is read and returned.
        """
        if crew is None:
            with make_crew(self.workers, self.device) as own:
                return self.run(out, own, observers)
        with single_thread():  # the server's sums too: bits do not depend on how many cores there are
            if out is None:
                return _play(Simulation(self, crew), observers)
            # A mistake that shows only with the data is told before there is a directory.
            new = None if Path(out).exists() else Simulation(self, crew)
            with RunDirectory(Path(out)) as directory:
                known = self._known_result(directory)
                if known is not None:
                    return replace(known, models=self._models(directory))
                simulation = new or Simulation(self, crew)
                return _play(simulation, [Keeper(directory), *observers], directory.path)

    def _known_result(self, directory: RunDirectory) -> Result | None:
        """Return the result of this experiment if the directory has it; refuse one that holds another run."""
        config = directory.path / CONFIG
        if not config.exists():
            if any(not entry.name.startswith(".") for entry in directory.path.iterdir()):
                raise InputError(f"{directory.path} holds files that are not a run's: give another --out")
            directory.write_settings(self.settings())
            return None
        held = type(self)(**read_toml(config))
        if identity(held.settings()) != identity(self.settings()):
            raise InputError(
                f"{directory.path} holds another run: give another --out, or continue that run with"
                f" --resume {directory.path}"
            )
        return directory.result()

    def _models(self, directory: RunDirectory) -> TrainedModels | None:
        """Return the models of a run that has finished, as its directory keeps them."""
        facts = directory.provenance()
        if facts is None:
            return None
        return TrainedModels.saved(directory.path, facts, self.trainer, self.model_name)


def _play(simulation: Simulation, observers: Sequence[Observer], directory: Path | None = None) -> Result:
    for observer in observers:
        observer.started(simulation)
    while not simulation.finished:
        record = simulation.play()
        for observer in observers:
            observer.round_done(simulation, record)
    result = replace(simulation.result(), models=TrainedModels.of(simulation, directory))
    for observer in observers:
        observer.finished(result)
    return result


def load_experiment(path: Path | str, workers: int | None = None) -> Experiment:
    """Read back the experiment that a directory holds, to be run with that many workers."""
    config = Path(path) / CONFIG
    if not config.exists():
        raise InputError(f"{path} holds no run to resume: there is no {CONFIG} in it")
    return Experiment(**read_toml(config) | ({} if workers is None else {"workers": workers}))
