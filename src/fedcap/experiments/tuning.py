"""Choosing a method's options before any attack is seen, and without test samples.

Each trial runs the method without an attack, once per seed, with a share of each client's training samples
held out; its score is the accuracy on those in the last round, averaged over the seeds. The best score wins,
and among equals the smaller options. Trials are cells of a `CellStore`: what was played before is only read,
so a tuning that was killed goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedcap.errors import InputError, RunError, nearest, plural
from fedcap.experiments import axes
from fedcap.experiments.cells import Cell
from fedcap.experiments.engines.base import Engine, Quiet, Watcher
from fedcap.experiments.engines.local import LocalEngine
from fedcap.experiments.plan import Plan, made_ready
from fedcap.experiments.searches import Options, Optuna, Search, Space, Trial, coordinate, grid
from fedcap.experiments.store import CellStore
from fedcap.registry import spelling
from fedcap.report.tables import Table
from fedcap.runs import to_toml
from fedcap.simulation import Experiment

HOLDOUT = 0.2
TRIALS = 30
"""How many trials Optuna makes unless the user says otherwise."""
SPACES: Mapping[str, Space] = {
    "fedcap": {"alpha": (2.0, 5.0, 10.0), "phi": (0.1, 0.2, 0.3), "lambda_": (0.1, 0.5, 1.0)},
    "ditto": {"lambda_": (0.01, 0.1, 0.5, 1.0)},
}
"""What is tried of each method unless the user says otherwise: the paper's values."""
WISDM = {"alpha": (1.0, 2.0, 3.0, 4.0)}
"""What the paper tried on WISDM instead."""
Watching = Callable[[Plan], AbstractContextManager[Watcher]]
"""Gives what watches some runs while they are played."""
NOTE = (
    "Accuracy in percent on held-out training samples, in the last round; test samples had no part."
    " Of equals, the smaller options are chosen."
)


@dataclass(frozen=True)
class Tuned:
    """What a tuning came to."""

    trials: Sequence[Trial]
    """In the order in which they were made."""
    experiment: Experiment
    """What was run, but for the seed and the options that were tried."""
    seeds: Sequence[int]

    @cached_property
    def best(self) -> Trial:
        """The trial whose options are chosen."""
        best = min(self.trials, key=lambda trial: trial.rank)
        if best.problem:
            raise RunError(f"no trial can be chosen: {best.problem}")
        return best

    @property
    def headline(self) -> str:
        """What was done, in a line."""
        made = self.experiment
        seeds = f"seed{'s' * (len(self.seeds) > 1)} {', '.join(map(str, self.seeds))}"
        return (
            f"{made.dataset_name} · {made.method.name} · no attack · {plural(made.rounds, 'round')} · {seeds}"
            f" · {made.holdout:g} of the training samples held out"
        )

    def table(self) -> Table:
        """Return the trials, the best first."""
        several = len(self.seeds) > 1
        rows = [
            [
                *map(_shown, trial.options.values()),
                f"{trial.score:.2f}" if trial.scores else None,
                *[f"{min(trial.scores):.2f}" if trial.scores else None] * several,
                trial.problem or ("chosen" if trial is self.best else ""),
            ]
            for trial in sorted(self.trials, key=lambda trial: trial.rank)
        ]
        columns = [*self.best.options, "held-out accuracy", *["worst seed"] * several, ""]
        return Table(columns, rows, self.headline, [NOTE])

    def settings(self) -> dict[str, Any]:
        """Return the chosen options as settings of an experiment."""
        return {"method": {"name": self.experiment.method.name, **self.best.options}}

    def toml(self) -> str:
        """Return the chosen options as TOML, for the file of a run or a grid."""
        return f"# {self.headline}: {self.best.score:.2f} %\n{to_toml(self.settings())}"


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else spelling(value)


def tune(
    dataset: Any = None,
    method: Any = None,
    space: Space | None = None,
    seeds: Sequence[int] | int | str = 0,
    holdout: float = HOLDOUT,
    search: str = "coordinate",
    trials: int | None = None,
    out: Path | str = "fedcap-grid",
    engine: Engine | None = None,
    watching: Watching | None = None,
    retry: bool = False,
    **settings: Any,
) -> Tuned:
    """Choose a method's options on attack-free runs with held-out training samples.

    `space` maps each option to the values to be tried, by default the paper's. `search` is "coordinate" (one
    option after the other), "grid" (every combination), or "optuna" (`trials` draws between the smallest and
    the largest value). Runs are kept in `out`, as a grid's are; with `retry`, those that failed before are
    tried again. Other settings are those of `Experiment`.
    """
    numbers = sorted(set(axes.seeds(seeds)))
    if not numbers:
        raise InputError("give at least one seed")
    given = {"dataset": dataset, "method": method, **settings, "holdout": holdout}
    given = {key: value for key, value in given.items() if value is not None}
    experiment = Experiment(**given)
    if experiment.adversary is not None:
        raise InputError("options are chosen before any attack is seen: tune without an attack")
    given["method"] = dict(experiment.method)
    player = _Player(given, numbers, CellStore(out), engine or LocalEngine(), watching or _unwatched, retry)
    _search(search, trials)(player.checked(usual_space(experiment) if space is None else space), player)
    return Tuned(list(player.trials.values()), experiment, numbers)


def _search(name: str, trials: int | None) -> Search:
    if trials is not None and name != "optuna":
        raise InputError(f"the number of trials is for --search optuna; {name!r} makes as many as it needs")
    searches: dict[str, Search] = {
        "coordinate": coordinate,
        "grid": grid,
        "optuna": Optuna(TRIALS if trials is None else trials),
    }
    if name not in searches:
        raise InputError(f"unknown search {name!r}: {nearest(name, searches)}")
    return searches[name]


def usual_space(experiment: Experiment) -> Space:
    """Return what is tried of a method unless the user says otherwise."""
    method, dataset = experiment.method.name, experiment.settings()["dataset"]
    if method not in SPACES:
        raise InputError(
            f"say which options of {method!r} to try: --try OPTION=VALUE,VALUE"
            f" (fedcap list {method} shows them)"
        )
    special = WISDM if method == "fedcap" and "wisdm" in (dataset["name"], dataset.get("like")) else {}
    return {**SPACES[method], **special}


class _Player:
    """Plays trials, and remembers them."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        seeds: Sequence[int],
        store: CellStore,
        engine: Engine,
        watching: Watching,
        retry: bool,
    ) -> None:
        self._settings, self._seeds = settings, seeds
        self._store, self._engine, self._watching, self._retry = store, engine, watching, retry
        self.trials: dict[str, Trial] = {}

    def __call__(self, choices: Sequence[Options]) -> list[Trial]:
        """Play a trial of each choice that is new; several cells at once."""
        new = {_key(options): options for options in choices if _key(options) not in self.trials}
        cells = {key: [self._cell(options, seed) for seed in self._seeds] for key, options in new.items()}
        everything = [cell for group in cells.values() for cell in group]
        plan = made_ready(everything, self._store, self._retry)
        with self._watching(plan) as watcher:
            self._engine.run(plan.left, self._store, watcher)
        plan = Plan.of(everything, self._store)
        self.trials |= {key: _trial(options, cells[key], plan) for key, options in new.items()}
        return [self.trials[_key(options)] for options in choices]

    def checked(self, space: Space) -> Space:
        """Return the values as the method reads them, each once, numbers in order; refuse others."""
        read = {}
        for name, values in space.items():
            found = [self._with({name: value}).settings()["method"][name] for value in values]
            if not found:
                raise InputError(f"no value of {name!r} to try: give at least one")
            numbers = all(isinstance(value, int | float) for value in found)
            read[name] = sorted(set(found)) if numbers else found
        return read

    def _with(self, options: Options, **settings: Any) -> Experiment:
        method = {**self._settings["method"], **options}
        return Experiment(**{**self._settings, "method": method, **settings})

    def _cell(self, options: Options, seed: int) -> Cell:
        experiment = self._with(options, seed=seed)
        place = {
            "dataset": experiment.dataset_name,
            "method": experiment.method.name,
            "rule": "",
            "attack": "none",
            "seed": str(seed),
            **{name: _shown(value) for name, value in options.items()},
        }
        return Cell(place, experiment)


def _trial(options: Options, cells: Sequence[Cell], plan: Plan) -> Trial:
    """Read a trial off its cells, one for each seed."""
    for cell in cells:
        if cell.name not in plan.done:
            return Trial(options, problem=f"seed {cell.experiment.seed}: {plan.failed[cell.name].why}")
        if plan.done[cell.name].diverged:
            return Trial(options, problem=f"seed {cell.experiment.seed}: diverged")
    return Trial(options, [plan.done[cell.name].tacc for cell in cells])


def _unwatched(plan: Plan) -> AbstractContextManager[Watcher]:
    return nullcontext(Quiet())


def _key(options: Options) -> str:
    return json.dumps(options, sort_keys=True)
