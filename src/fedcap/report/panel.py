"""One model of a grid for tables, statistics and the report page.

Each run of a grid has a *place*: a mapping from axis to label, such as `{"dataset": "digits", "method":
"fedcap", "rule": "", "attack": "ipm", "seed": "0", "training.lr": "0.1"}`. A `Panel` holds the outcomes of
methods × attacks × seeds where all other axes are equal. Means are over the seeds that have finished.
Differences between methods are over the seeds that both have. Only outcomes and places are needed here, no
data and no weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any

from fedcap.registry import spelling
from fedcap.report.statistics import half_width, holm, sign_flip_p
from fedcap.runs import FREE_TO_CHANGE, Named, Outcome, Place, Settings, flattened

NO_ATTACK = "none"
USUAL_AXES = ("dataset", "method", "rule", "attack", "seed")
"""The axes that every place has, in order. All others are settings, such as `training.lr`."""

Finished = Sequence[tuple[Place, Outcome]]
"""Finished runs: the place and the outcome of each. A run at two places is in it twice."""


@dataclass(frozen=True)
class Estimate:
    """The mean of a figure over seeds."""

    mean: float
    half_width: float | None
    """Half the width of the mean's 95 % interval; none with fewer than three seeds."""
    seeds: tuple[str, ...]
    diverged: int = 0
    stopped: int = 0
    """How many of the runs diverged, and how many stopped since all clients were removed."""

    @classmethod
    def of(cls, runs: Mapping[str, Outcome], figure: str) -> Estimate | None:
        """Return the mean over the runs, by seed, that have the figure; none if no run has it."""
        having = {seed: run for seed, run in runs.items() if getattr(run, figure) is not None}
        values = [float(getattr(run, figure)) for run in having.values()]
        if not values:
            return None
        return cls(fmean(values), half_width(values), tuple(having), *_troubled(having.values()))


@dataclass(frozen=True)
class Difference:
    """The mean difference of a figure between two methods, over the seeds that both have."""

    mean: float
    half_width: float | None
    """Half the width of the 95 % interval of the mean difference; none with fewer than three seeds."""
    seeds: tuple[str, ...]
    p: float
    p_holm: float
    """The p-value of the sign-flip test, and the same after Holm's correction over all attacks."""
    diverged: int = 0
    stopped: int = 0
    """How many of the runs of both methods diverged, and how many stopped."""


@dataclass(frozen=True)
class Worst:
    """The attack under which a method's mean is lowest."""

    attack: str
    estimate: Estimate
    complete: bool
    """Whether every attack has a mean. If not, a missing attack may be the worst."""


@dataclass(frozen=True)
class Panel:
    """Methods × attacks × seeds where all other axes are equal."""

    place: Mapping[str, str]
    """The equal axes: the data set, and each other axis of the grid."""
    methods: Sequence[str]
    columns: Sequence[str]
    """The attacks. `none` comes first if runs without an attack are among them."""
    seeds: Sequence[str]
    runs: Mapping[tuple[str, str], Mapping[str, Outcome]]
    """By method and attack: the outcome of each finished seed."""

    @property
    def attacks(self) -> list[str]:
        """The columns that are attacks."""
        return [attack for attack in self.columns if attack != NO_ATTACK]

    @property
    def title(self) -> str:
        """The equal axes as text: "digits", "digits, rounds 30"."""
        return panel_title(self.place)

    def of(self, method: str, attack: str) -> Mapping[str, Outcome]:
        """Return a method's outcomes under an attack, by seed."""
        return self.runs.get((method, attack), {})

    def estimate(self, method: str, attack: str, figure: str = "tacc") -> Estimate | None:
        """Return the mean of a figure over the finished seeds; none if no run has it."""
        return Estimate.of(self.of(method, attack), figure)

    def worst(self, method: str, figure: str = "tacc") -> Worst | None:
        """Return the attack with the lowest mean, the first of equals; none if no attack has a mean."""
        means = {attack: self.estimate(method, attack, figure) for attack in self.attacks}
        there = {attack: mean for attack, mean in means.items() if mean is not None}
        if not there:
            return None
        attack = min(there, key=lambda attack: there[attack].mean)
        return Worst(attack, there[attack], complete=len(there) == len(means))

    def under_attack(self, method: str, figure: str) -> float | None:
        """Return the mean of a figure over all attacked runs of a method that have it."""
        runs = chain.from_iterable(self.of(method, attack).values() for attack in self.attacks)
        values = [value for run in runs if (value := getattr(run, figure)) is not None]
        return fmean(values) if values else None

    def differences(self, method: str, against: str, figure: str = "tacc") -> dict[str, Difference]:
        """Return the difference of a method to another under each attack for which both have a seed."""
        pairs = {attack: self._pairs(method, against, attack, figure) for attack in self.columns}
        gaps = {
            attack: [getattr(ours, figure) - getattr(theirs, figure) for ours, theirs in found.values()]
            for attack, found in pairs.items()
            if found
        }
        p_values = {attack: sign_flip_p(gap) for attack, gap in gaps.items()}
        corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
        return {
            attack: Difference(
                fmean(gap),
                half_width(gap),
                tuple(pairs[attack]),
                p_values[attack],
                corrected[attack],
                *_troubled(chain.from_iterable(pairs[attack].values())),
            )
            for attack, gap in gaps.items()
        }

    def _pairs(
        self, method: str, against: str, attack: str, figure: str
    ) -> dict[str, tuple[Outcome, Outcome]]:
        """Return both methods' outcomes at each seed at which both have the figure."""
        ours, theirs = self.of(method, attack), self.of(against, attack)
        pairs = {seed: (ours[seed], theirs[seed]) for seed in ours if seed in theirs}
        return {
            seed: pair
            for seed, pair in pairs.items()
            if all(getattr(run, figure) is not None for run in pair)
        }


def make_panels(finished: Finished, planned: Iterable[Place] = ()) -> list[Panel]:
    """Sort finished runs into panels; places that are planned but not finished are missing in them."""
    places: dict[tuple[tuple[str, str], ...], list[Place]] = {}
    outcomes: dict[tuple[tuple[str, str], ...], list[tuple[Place, Outcome]]] = {}
    for place in chain(planned, (place for place, _ in finished)):
        places.setdefault(_panel_key(place), []).append(place)
    for place, outcome in finished:
        outcomes.setdefault(_panel_key(place), []).append((place, outcome))
    return [_make_panel(key, own, outcomes.get(key, [])) for key, own in places.items()]


def _make_panel(key: tuple[tuple[str, str], ...], places: Sequence[Place], finished: Finished) -> Panel:
    runs: dict[tuple[str, str], dict[str, Outcome]] = {}
    for place, outcome in finished:
        runs.setdefault((row_label(place), column_label(place)), {})[place["seed"]] = outcome
    seeds = list(dict.fromkeys(place["seed"] for place in places))
    return Panel(
        place=dict(key),
        methods=list(dict.fromkeys(map(row_label, places))),
        columns=sorted(dict.fromkeys(map(column_label, places)), key=lambda attack: attack != NO_ATTACK),
        seeds=seeds,
        runs={at: {seed: own[seed] for seed in seeds if seed in own} for at, own in runs.items()},
    )


def _panel_key(place: Place) -> tuple[tuple[str, str], ...]:
    """Return the axes that a panel has in common: all but methods, attacks, their options, and seeds."""
    inside = ("method", "rule", "attack", "seed")
    return tuple(
        (axis, label)
        for axis, label in place.items()
        if axis not in inside and not axis.startswith(("method.", "attack."))
    )


def _troubled(runs: Iterable[Outcome]) -> tuple[int, int]:
    """Return how many runs diverged, and how many stopped."""
    every = list(runs)
    return sum(run.diverged for run in every), sum(run.stopped is not None for run in every)


# --- The labels of a place


def method_label(place: Place) -> str:
    """Return the method with its rule: `fedavg+bucketing(median)`."""
    return "+".join(filter(None, (place["method"], place.get("rule"))))


def row_label(place: Place) -> str:
    """Return the row of a place in its panel: the method, with its options that vary: `fedcap (alpha 5)`."""
    return _with_options(method_label(place), "method.", place)


def column_label(place: Place) -> str:
    """Return the column of a place in its panel: the attack, with its options that vary."""
    return _with_options(place["attack"], "attack.", place)


def panel_title(place: Place) -> str:
    """Return the panel of a place as text: "digits", "digits, rounds 30"."""
    others = [f"{axis} {label}" for axis, label in _panel_key(place) if axis != "dataset"]
    return ", ".join([place["dataset"], *others])


def place_text(place: Place) -> str:
    """Return a place as one line: `digits · fedcap · ipm · seed 0 · training.lr 0.1`."""
    others = (f"{axis} {label}" for axis, label in place.items() if label and axis not in USUAL_AXES)
    usual = (place["dataset"], method_label(place), place["attack"], f"seed {place['seed']}")
    return " · ".join([*usual, *others])


def attack_title(attack: str) -> str:
    """Return the heading of an attack's column."""
    return "no attack" if attack == NO_ATTACK else attack


def _with_options(name: str, owner: str, place: Place) -> str:
    options = [
        f"{axis.removeprefix(owner)} {label}"
        for axis, label in place.items()
        if axis.startswith(owner) and label
    ]
    return f"{name} ({', '.join(options)})" if options else name


# --- Places of runs that were recorded without one


def derive_places(runs: Sequence[Settings]) -> list[list[Place]]:
    """Return the places of runs whose folder does not store them, from the settings that vary among them.

    Only for grid folders of older versions. Settings that vary between runs of one data set become axes. A
    run has several places if an axis does not apply to it: the share of malicious clients, without an attack.
    """
    found: dict[int, list[Place]] = {}
    for dataset in dict.fromkeys(run.dataset_name for run in runs):
        own = [(at, run) for at, run in enumerate(runs) if run.dataset_name == dataset]
        others = [_other_settings(run) for _, run in own]
        axes = _varying(others)
        labels = [{axis: label for axis, label in table.items() if axis in axes} for table in others]
        complete = [table for table in labels if len(table) == len(axes)]
        methods = _varying_options(run.method for _, run in own)
        attacks = _varying_options(run.attack for _, run in own)
        for (at, run), table in zip(own, labels, strict=True):
            usual = {
                "dataset": dataset,
                "method": run.method.name,
                "rule": _rule_label(run.method),
                "attack": run.attack.name,
                "seed": str(run.seed),
                **_options("method", run.method, methods[run.method.name] - {"rule"}),
                **_options("attack", run.attack, attacks[run.attack.name]),
            }
            fitting = [other for other in complete if table.items() <= other.items()] or [table]
            distinct = {tuple(other.items()): other for other in fitting}.values()
            found[at] = [
                {**usual, **{axis: other[axis] for axis in axes if axis in other}} for other in distinct
            ]
    return [found[at] for at in range(len(runs))]


def _other_settings(run: Settings) -> dict[str, str]:
    """Return the settings that are neither the method's nor the attack's, as labels by dotted names."""
    apart = {"seed", "eval_every", "device", "dataset.path", *FREE_TO_CHANGE}
    own = {"method", "attack"} | ({"malicious"} if run.attack.name == NO_ATTACK else set())
    table = {key: value for key, value in run.model_dump(mode="json").items() if key not in own}
    return {axis: _label(value) for axis, value in flattened(table) if axis not in apart}


def _rule_label(method: Named) -> str:
    rule = spelling(method.options.get("rule", ""))
    return "" if rule == "mean" else rule


def _varying_options(things: Iterable[Named]) -> dict[str, set[str]]:
    """Return the options that vary between things of one name, by that name."""
    tables: dict[str, list[dict[str, str]]] = {}
    for thing in things:
        tables.setdefault(thing.name, []).append({key: _label(value) for key, value in thing.options.items()})
    return {name: set(_varying(own)) for name, own in tables.items()}


def _options(owner: str, thing: Named, varying: set[str]) -> dict[str, str]:
    return {f"{owner}.{key}": _label(value) for key, value in thing.options.items() if key in varying}


def _varying(tables: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the keys under which tables that have them hold different values."""
    values: dict[str, set[str]] = {}
    for table in tables:
        for key, value in table.items():
            values.setdefault(key, set()).add(value)
    return [key for key, found in values.items() if len(found) > 1]


def _label(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_label, value)) or "none"
    if isinstance(value, Mapping):
        return spelling(value) if "name" in value else json.dumps(value, sort_keys=True)
    return str(value)
