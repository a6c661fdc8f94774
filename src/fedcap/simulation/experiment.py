"""An experiment: all settings of a run, and the run itself.

`Experiment(dataset="digits", method="fedcap", attack="ipm").run()` is the whole of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedcap.records import CONFIG, Result, RunDirectory, identity, read_toml
from fedcap.registry import InputError
from fedcap.simulation.arguments import check_run
from fedcap.simulation.checkpoint import Keeper
from fedcap.simulation.loop import Observer, Simulation
from fedcap.simulation.resolving import explain
from fedcap.simulation.setup import Setup
from fedcap.training import Crew, make_crew, single_thread


class Experiment(Setup):
    """All settings of one run; `run` plays it."""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
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
        check_run(out, crew, observers)
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
                return known or _play(new or Simulation(self, crew), [Keeper(directory), *observers])

    def _known_result(self, directory: RunDirectory) -> Result | None:
        """Return the result of this experiment if the directory has it; refuse one that holds another run."""
        config = directory.path / CONFIG
        if not config.exists():
            if any(not entry.name.startswith(".") for entry in directory.path.iterdir()):
                raise InputError(f"{directory.path} holds files that are not a run's: give another --out")
            directory.write_settings(self.settings())
            return None
        if identity(read_toml(config)) != identity(self.settings()):
            raise InputError(
                f"{directory.path} holds another run: give another --out, or continue that run with"
                f" --resume {directory.path}"
            )
        return directory.result()


def _play(simulation: Simulation, observers: Sequence[Observer]) -> Result:
    for observer in observers:
        observer.started(simulation)
    while not simulation.finished:
        record = simulation.play()
        for observer in observers:
            observer.round_done(simulation, record)
    result = simulation.result()
    for observer in observers:
        observer.finished(result)
    return result


def load_experiment(path: Path | str, workers: int | None = None) -> Experiment:
    """Read back the experiment that a directory holds, to be run with that many workers."""
    config = Path(path) / CONFIG
    if not config.exists():
        raise InputError(f"{path} holds no run to resume: there is no {CONFIG} in it")
    return Experiment(**read_toml(config) | ({} if workers is None else {"workers": workers}))
