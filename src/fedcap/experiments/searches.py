"""Ways to search for a method's options: every combination, one option after the other, or by Optuna.

A search is given the values to be tried of each option and a function that plays trials. It plays what it
likes; whoever called it takes the best of all trials.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcap.errors import InputError

Options = Mapping[str, Any]
"""A value for each option."""
Space = Mapping[str, Sequence[Any]]
"""The values of each option that are to be tried."""


@dataclass(frozen=True)
class Trial:
    """One choice of options, and the accuracy on held-out samples that it came to."""

    options: Options
    scores: Sequence[float] = ()
    """Percent, one for each seed; empty if a run failed."""
    problem: str = ""
    """Why the choice is out of the question, if it is."""

    @property
    def score(self) -> float:
        """The mean over the seeds, rounded, so that equal ones are equal however they were summed up."""
        return round(statistics.fmean(self.scores), 6) if self.scores else 0.0

    @property
    def rank(self) -> tuple[Any, ...]:
        """What trials are sorted by, the best first: among equals, smaller options come first."""
        order = [(0, v) if isinstance(v, int | float) else (1, str(v)) for v in self.options.values()]
        return bool(self.problem), -self.score, order


Play = Callable[[Sequence[Options]], Sequence[Trial]]
"""Plays a trial of each of these choices, several at once; what was played before is remembered."""
Search = Callable[[Space, Play], None]


def grid(space: Space, play: Play) -> None:
    """Try every combination."""
    play([dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())])


def coordinate(space: Space, play: Play) -> None:
    """Start in the middle; choose the best value of one option after the other until no option changes."""
    here: Options = {name: values[(len(values) - 1) // 2] for name, values in space.items()}
    before: Options = {}
    while here != before:
        before = here
        for name, values in space.items():
            line = play([{**here, name: value} for value in values])
            here = min(line, key=lambda trial: trial.rank).options


@dataclass(frozen=True)
class Optuna:
    """Let Optuna's tree-structured Parzen estimator draw options between the smallest and largest values."""

    trials: int

    def __call__(self, space: Space, play: Play) -> None:
        """Play one trial after the other; the draws depend on nothing but the scores so far."""
        try:
            import optuna
        except ModuleNotFoundError:
            raise InputError(
                "--search optuna needs Optuna: pip install 'fedcap[optuna]', or use --search coordinate"
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
        for _ in range(self.trials):
            asked = study.ask()
            (trial,) = play([{name: _drawn(asked, name, values) for name, values in space.items()}])
            if trial.problem:
                study.tell(asked, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(asked, trial.score)


def _drawn(asked: Any, name: str, values: Sequence[Any]) -> Any:
    """Return a value that Optuna draws: a number to three digits, or one of the values given."""
    if all(type(value) is int for value in values):
        return asked.suggest_int(name, min(values), max(values))
    if all(type(value) is float for value in values):
        return float(f"{asked.suggest_float(name, min(values), max(values)):.3g}")
    return asked.suggest_categorical(name, values)
