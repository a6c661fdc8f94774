"""Choose the main option of each method before any attack is seen, on held-out training samples.

The values that were tried, their scores, and the choice are recorded in `results/tuning/`, a file for each
data set. Where a choice is not the default, the grid of every method has the tuned method as another row.
FLTrust is not tuned: its 100 root samples are as published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from fedcap import Experiment
from fedcap.experiments.engine import Engine
from fedcap.experiments.tuning import HOLDOUT, tune
from fedcap.files import Value, write_aside
from fedcap.report.tables import Table

FOLDER = "tuning"
"""Inside the folder of results, where all files are outcomes of runs."""
ROUNDS = 30
"""The rounds of a trial, as in the grids of every method."""
TUNED_ON = ("digits", "handwritten62", "wisdm")

_LAMBDAS = (0.01, 0.1, 0.5, 1.0, 2.0)
_LENGTHS = (None, 0.1, 0.3, 1.0, 3.0, 10.0)
Options = Mapping[str, Any]
SPACES: Mapping[str, tuple[str, str, Mapping[str, Sequence[Any]] | None]] = {
    "ditto": ("ditto", "mean", {"lambda_": _LAMBDAS}),
    "ditto+median": ("ditto", "median", {"lambda_": _LAMBDAS}),
    "fedfomo": ("fedfomo", "", {"models": (2, 5, 10, 18)}),
    "fedavg+centred-clipping": ("fedavg", "centred-clipping", {"threshold": _LENGTHS}),
    "fedavg+norm-clipping": ("fedavg", "norm-clipping", {"threshold": _LENGTHS}),
    "fedavg+gas(median)": ("fedavg", "gas", {"chunks": (10, 100, 1000, 10000)}),
    "fedcap": ("fedcap", "", None),
}
"""By the name in the grid of every method: the method, its rule, and the values to try; None for the paper's.

A threshold of None is the median length of each round's updates.
"""


@dataclass(frozen=True)
class Choice:
    """The options that were chosen for a method on a data set, and all trials."""

    dataset: str
    method: str
    """The name in the grid of every method."""
    rounds: int
    seeds: Sequence[int]
    holdout: float
    chosen: Options
    default: Options
    trials: Sequence[Mapping[str, Any]]
    """The options and the held-out accuracy with each seed, in the order in which trials were played."""

    @property
    def is_default(self) -> bool:
        """Whether the default was chosen."""
        return dict(self.chosen) == dict(self.default)

    def text(self, options: Options) -> str:
        """Return options and their mean score as text; a default that was not tried has no score."""
        words = ", ".join(f"{'median' if value is None else f'{value:g}'}" for value in options.values())
        trial = next((trial for trial in self.trials if trial["options"] == dict(options)), None)
        return f"{words}: {fmean(trial['scores']):.1f}" if trial and trial["scores"] else f"{words}: –"


def choose(dataset: str, name: str, seeds: Sequence[int], out: Path, engine: Engine) -> Choice:
    """Play the trials of a method on a data set; of equal ones the default wins, then the smallest."""
    method, rule, space = SPACES[name]
    given = {"name": method, **({"rule": rule} if rule else {})}
    usual = Experiment(dataset=dataset, method=given).settings()["method"]
    of_rule = space is not None and not space.keys() <= usual.keys()
    if of_rule and space:
        (option, values), *_ = space.items()
        space = {"rule": [{"name": rule, option: value} for value in values]}
    tuned = tune(dataset, given, space, seeds, out=out, engine=engine, rounds=ROUNDS)

    def brief(options: Options) -> Options:
        if of_rule:
            return {option: options["rule"].get(option)}  # an option that is None is not among the settings
        return {name: options[name] for name in tried}

    tried = tuned.best.options.keys()
    equal = [trial for trial in tuned.trials if trial.score == tuned.best.score and not trial.problem]
    best = [brief(trial.options) for trial in equal]
    chosen = brief(usual) if brief(usual) in best else min(best, key=lambda options: [*options.values()])
    return Choice(
        dataset,
        name,
        ROUNDS,
        list(tuned.seeds),
        HOLDOUT,
        chosen,
        brief(usual),
        [{"options": brief(trial.options), "scores": list(trial.scores)} for trial in tuned.trials],
    )


def read_choices(results: Path) -> list[Choice]:
    """Return the recorded choices, by data set; none if there is no record."""
    paths = sorted((results / FOLDER).glob("*.json"))
    return [Choice(**each) for path in paths for each in json.loads(path.read_text())]


def record(choice: Choice, results: Path) -> None:
    """Add a choice to the record, in place of that of the same method on the same data set."""
    known = [each for each in read_choices(results) if each.dataset == choice.dataset]
    at = {each.method: each for each in [*known, choice]}
    (results / FOLDER).mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(each) for each in at.values()], indent=1)
    write_aside(results / FOLDER / f"{choice.dataset}.json", text + "\n")


def table(choices: Sequence[Choice]) -> Table:
    """Return a row for each choice: the values tried, the default, and what was chosen."""
    rows: list[list[Value]] = []
    for each in choices:
        tried = "; ".join(each.text(trial["options"]) for trial in each.trials)
        chosen = "the default" if each.is_default else each.text(each.chosen)
        option = ", ".join(name.rstrip("_") for name in each.chosen)
        rows.append([each.dataset, each.method, option, tried, each.text(each.default), chosen])
    return Table(("data set", "method", "option", "tried: held-out accuracy, %", "default", "chosen"), rows)
