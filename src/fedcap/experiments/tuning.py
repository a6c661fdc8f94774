"""Choosing a method's options before any attack is seen, and without test samples.

Each trial runs the method without an attack, once per seed. A share of each client's training samples is held
out; the score is the accuracy on these in the last round, averaged over the seeds. The best score wins, and
among equals the smaller options. Trials are cells of a `CellStore`, so an interrupted tuning continues.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedcap.errors import InputError, RunError, nearest, plural
from fedcap.experiments.engine import Engine, LogFailures, Watcher
from fedcap.experiments.grid import Cell, parse_seeds
from fedcap.experiments.local import LocalEngine
from fedcap.experiments.store import CellStore, GridStatus, prepare
from fedcap.registry import spelling
from fedcap.report.tables import Table
from fedcap.runs import to_toml
from fedcap.simulation import Experiment

Options = Mapping[str, Any]
"""A value for each option."""
Space = Mapping[str, Sequence[Any]]
"""The values to try of each option."""

HOLDOUT = 0.2
TRIALS = 30
"""The number of Optuna's trials unless the user gives another."""
SPACES: Mapping[str, Space] = {
    "fedcap": {"alpha": (2.0, 5.0, 10.0), "phi": (0.1, 0.2, 0.3), "lambda_": (0.1, 0.5, 1.0)},
    "ditto": {"lambda_": (0.01, 0.1, 0.5, 1.0)},
}
"""The values to try of each method unless the user gives others: the paper's."""
WISDM = {"alpha": (1.0, 2.0, 3.0, 4.0)}
"""The values that the paper tried on WISDM instead."""
Watching = Callable[[GridStatus], AbstractContextManager[Watcher]]
"""Returns the watcher of some runs."""
NOTE = (
    "Accuracy in percent on held-out training samples, in the last round; test samples are not used."
    " Of equal trials, the one with smaller options is chosen."
)


@dataclass(frozen=True)
class Trial:
    """One choice of options, and its accuracy on held-out samples."""

    options: Options
    scores: Sequence[float] = ()
    """Percent, one for each seed; empty if a run failed."""
    problem: str = ""
    """Why the choice cannot be used, if so."""

    @property
    def score(self) -> float:
        """The mean over the seeds, rounded so that the order of summation does not matter."""
        return round(statistics.fmean(self.scores), 6) if self.scores else 0.0

    @property
    def rank(self) -> tuple[Any, ...]:
        """The sort key of trials, best first: among equals, smaller options come first."""
        order = [(0, v) if isinstance(v, int | float) else (1, str(v)) for v in self.options.values()]
        return bool(self.problem), -self.score, order


@dataclass(frozen=True)
class Tuned:
    """The result of a tuning."""

    trials: Sequence[Trial]
    """In the order in which they were played."""
    experiment: Experiment
    """The experiment of all trials, except for the seed and the options that were tried."""
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
        """What was run, in one line."""
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
                *map(_label, trial.options.values()),
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


def _label(value: Any) -> str:
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

    `space` maps each option to the values to try, by default the paper's. `search` is "coordinate" (one
    option after the other), "grid" (every combination), or "optuna" (`trials` draws between the smallest and
    the largest value). Runs are stored in `out`, as those of a grid. With `retry`, runs that failed before
    are tried again. Other settings are those of `Experiment`.
    """
    numbers = sorted(set(parse_seeds(seeds)))
    if not numbers:
        raise InputError("give at least one seed", code="no-values", field="seeds")
    given = {"dataset": dataset, "method": method, **settings, "holdout": holdout}
    given = {key: value for key, value in given.items() if value is not None}
    experiment = Experiment(**given)
    if experiment.adversary is not None:
        raise InputError(
            "options are chosen before any attack is seen: tune without an attack",
            code="bad-value",
            field="attack",
        )
    given["method"] = dict(experiment.method)
    watch = watching or (lambda status: nullcontext(LogFailures()))
    player = _Player(given, numbers, CellStore(out), engine or LocalEngine(), watch, retry)
    _search(search, trials)(player.checked(usual_space(experiment) if space is None else space), player)
    return Tuned(list(player.trials.values()), experiment, numbers)


def usual_space(experiment: Experiment) -> Space:
    """Return the values to try of a method unless the user gives others."""
    method, dataset = experiment.method.name, experiment.settings()["dataset"]
    if method not in SPACES:
        raise InputError(
            f"there are no usual values of {method!r}'s options: give the options to try and their values",
            code="no-space",
            field=method,
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
        """Play a trial of each new choice; several cells at once."""
        new = {_key(options): options for options in choices if _key(options) not in self.trials}
        cells = {key: [self._cell(options, seed) for seed in self._seeds] for key, options in new.items()}
        everything = [cell for group in cells.values() for cell in group]
        status = prepare(everything, self._store, self._retry)
        with self._watching(status) as watcher:
            self._engine.run(status.left, self._store, watcher)
        status = GridStatus.of(everything, self._store)
        self.trials |= {key: _read_trial(options, cells[key], status) for key, options in new.items()}
        return [self.trials[_key(options)] for options in choices]

    def checked(self, space: Space) -> Space:
        """Return the values as the method reads them, each once, numbers in order; refuse others."""
        read = {}
        for name, values in space.items():
            found = [self._with({name: value}).settings()["method"][name] for value in values]
            if not found:
                raise InputError(
                    f"no value of {name!r} to try: give at least one", code="no-values", field=name
                )
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
            **{f"method.{name}": _label(value) for name, value in options.items()},
        }
        return Cell(place, experiment)


def _read_trial(options: Options, cells: Sequence[Cell], status: GridStatus) -> Trial:
    """Return a trial from its cells, one for each seed."""
    for cell in cells:
        if cell.name not in status.done:
            return Trial(options, problem=f"seed {cell.experiment.seed}: {status.failed[cell.name].why}")
        if status.done[cell.name].diverged:
            return Trial(options, problem=f"seed {cell.experiment.seed}: diverged")
    return Trial(options, [status.done[cell.name].tacc for cell in cells])


def _key(options: Options) -> str:
    return json.dumps(options, sort_keys=True)


# --- Searches

Play = Callable[[Sequence[Options]], Sequence[Trial]]
"""Plays a trial of each choice, several at once; a choice that was played before is not played again."""
Search = Callable[[Space, Play], None]
"""Plays trials of a space; the caller takes the best of all."""


def _search(name: str, trials: int | None) -> Search:
    if trials is not None and name != "optuna":
        raise InputError(
            f"the number of trials is for the search optuna; {name!r} makes as many as it needs",
            code="bad-option",
            field="trials",
        )
    searches: dict[str, Search] = {
        "coordinate": coordinate_search,
        "grid": grid_search,
        "optuna": OptunaSearch(TRIALS if trials is None else trials),
    }
    if name not in searches:
        raise InputError(
            f"unknown search {name!r}: {nearest(name, searches)}", code="unknown-name", field="search"
        )
    return searches[name]


def grid_search(space: Space, play: Play) -> None:
    """Try every combination."""
    play([dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())])


def coordinate_search(space: Space, play: Play) -> None:
    """Start in the middle; choose the best value of one option after the other until no option changes."""
    here: Options = {name: values[(len(values) - 1) // 2] for name, values in space.items()}
    before: Options = {}
    while here != before:
        before = here
        for name, values in space.items():
            line = play([{**here, name: value} for value in values])
            here = min(line, key=lambda trial: trial.rank).options


@dataclass(frozen=True)
class OptunaSearch:
    """Let Optuna's tree-structured Parzen estimator draw options between the smallest and largest values."""

    trials: int

    def __call__(self, space: Space, play: Play) -> None:
        """Play one trial after the other; the draws depend only on the scores so far."""
        try:
            import optuna
        except ModuleNotFoundError:
            raise InputError(
                "the search optuna needs Optuna: pip install 'fedcap[optuna]', or use the search coordinate",
                code="needs-extra",
                field="optuna",
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
        for _ in range(self.trials):
            asked = study.ask()
            (trial,) = play([{name: _draw(asked, name, values) for name, values in space.items()}])
            if trial.problem:
                study.tell(asked, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(asked, trial.score)


def _draw(asked: Any, name: str, values: Sequence[Any]) -> Any:
    """Return a value that Optuna draws: a number to three digits, or one of the given values."""
    if all(type(value) is int for value in values):
        return asked.suggest_int(name, min(values), max(values))
    if all(type(value) is float for value in values):
        return float(f"{asked.suggest_float(name, min(values), max(values)):.3g}")
    return asked.suggest_categorical(name, values)
