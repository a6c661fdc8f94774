"""A grid: one run for every combination of methods, rules, attacks, data sets, seeds and other settings.

`Grid(methods=["fedavg", "fedcap"], attacks="all", seeds="0-4").run(out="grid")` plays, saves and compares
all runs. A seed fixes the partition, the malicious clients and the first weights. So cells that differ only
in their method are paired.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from fedcap.errors import InputError, nearest
from fedcap.experiments.comparison import Comparison
from fedcap.experiments.engine import Engine, LogFailures, Watcher
from fedcap.experiments.local import LocalEngine
from fedcap.experiments.store import CellStore, GridStatus, prepare
from fedcap.registry import GIVEN, spelling, split
from fedcap.report.panel import method_label, place_text
from fedcap.runs import Place, flattened, overlay, read_toml, settings_key
from fedcap.simulation import Experiment
from fedcap.simulation import settings as choosing

PLURALS = {"datasets": "dataset", "methods": "method", "rules": "rule", "attacks": "attack", "seeds": "seed"}
"""The arguments of the usual axes, and the name of each axis in a cell's place."""
ALL = "all"
"""Stands for all named things of a kind."""
ORDER = ("seed", "dataset", "attack", "method", "rule")
"""The order of cells: all cells of a seed come before the next seed, so that half a grid is useful."""
MOST_RUNS = 50_000
"""A grid of more runs is refused: it is taken for a mistake, and its settings alone would take minutes."""
THINGS = tuple(choosing.UNLESS_GIVEN)
"""Settings that are things with options."""


# --- Axes


@dataclass(frozen=True)
class Axis:
    """A setting, such as `method` or `training.lr`, and its values by their labels."""

    setting: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, setting: str, given: Any) -> Axis:
        """Read an axis: one value, several values, or a mapping from labels to values."""
        if isinstance(given, Mapping) and "name" not in given:
            pairs = [(str(label), _as_value(setting, value)) for label, value in given.items()]
        else:
            pairs = [_labelled(setting, value) for value in _as_list(setting, given)]
        if not pairs:
            raise InputError(
                f"axis {setting} has no values: give one, or leave the axis out",
                code="no-values",
                field=setting,
            )
        values: dict[str, Any] = {}
        for label, value in pairs:
            if label in values and values[label] != value:
                raise InputError(
                    f"two values of axis {setting} have the label {label}: give labels, as a mapping",
                    code="same-label",
                    field=label,
                )
            values[label] = value
        return cls(setting, values)


def _as_list(setting: str, given: Any) -> Sequence[Any]:
    if setting == "seed":
        return parse_seeds(given)
    if setting in choosing.KINDS:
        if isinstance(given, str):
            given = split(given)
        if given == [ALL] and setting != "dataset":
            return choosing.names(setting)
    elif isinstance(given, str):
        return [given]
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]


def _labelled(setting: str, value: Any) -> tuple[str, Any]:
    """Return a value and its label; a table may have its label in it."""
    if setting not in choosing.KINDS:
        return spelling(value), value
    given = None
    if isinstance(value, Mapping) and "label" in value:
        given, value = str(value["label"]), {key: inner for key, inner in value.items() if key != "label"}
    table = _as_value(setting, value)
    return given or choosing.label_of(setting, table), table


def _as_value(setting: str, value: Any) -> Any:
    return choosing.table_of(setting, value) if setting in choosing.KINDS else value


def parse_seeds(given: Any) -> list[int]:
    """Return seeds given as numbers, or as text such as `0-4,7`."""
    if isinstance(given, str):
        return list(_ranges(given))
    many = given if isinstance(given, Sequence | range) else [given]
    for seed in many:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise _bad_seed(seed)
    return list(many)


def _ranges(text: str) -> Iterator[int]:
    for part in split(text):
        found = re.fullmatch(r"(\d+)(?:\s*-\s*(\d+))?", part)
        if found is None or (found[2] and int(found[2]) < int(found[1])):
            raise _bad_seed(part)
        seeds = range(int(found[1]), int(found[2] or found[1]) + 1)
        if seeds.stop - seeds.start > MOST_RUNS:
            raise _too_many(seeds.stop - seeds.start)
        yield from seeds


def _bad_seed(given: Any) -> InputError:
    return InputError(
        f"seeds are whole numbers from 0, such as 0-4,7 (got {given!r})", code="bad-value", field="seeds"
    )


def _too_many(runs: int) -> InputError:
    return InputError(
        f"this grid has {runs:,} runs, and at most {MOST_RUNS:,} are allowed: give fewer seeds or values",
        code="too-many-runs",
    )


# --- Cells


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a grid: its place on the axes, and the experiment to play."""

    place: Place
    """Axis to label: dataset, method, rule (empty if it takes none), attack, seed, and other settings."""
    experiment: Experiment

    @cached_property
    def name(self) -> str:
        """The name of its folder: the start of the experiment's digest. The data must be there."""
        return self.experiment.digest()[:16]

    @cached_property
    def key(self) -> str:
        """The hash of its settings alone, as in `Outcome.key`. The data is not needed."""
        return settings_key(self.experiment.settings())

    @property
    def method(self) -> str:
        """The method with its rule, as in tables: `fedavg+bucketing(median)`."""
        return method_label(self.place)

    def __str__(self) -> str:
        return place_text(self.place)


class Grid:
    """All combinations of the axes, with common settings."""

    def __init__(
        self,
        datasets: Any = None,
        methods: Any = None,
        rules: Any = None,
        attacks: Any = None,
        seeds: Any = None,
        axes: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Take the axes, each as one value, a list, or a mapping from labels to values.

        `axes` are any other settings, with lists of values: `{"training.lr": [0.1, 0.05]}`. `settings` are
        the settings of every cell, as `Experiment` takes them. Rules, and options of methods and attacks,
        apply to the cells whose method or attack takes them.
        """
        usual = {"datasets": datasets, "methods": methods, "rules": rules, "attacks": attacks, "seeds": seeds}
        given = dict(flattened(axes or {}, PLURALS)) | {
            name: each for name, each in usual.items() if each is not None
        }
        named = ((PLURALS.get(name, name), values) for name, values in given.items())
        self._axes = {setting: Axis.of(setting, values) for setting, values in named}
        if self.combinations > MOST_RUNS:
            raise _too_many(self.combinations)
        things = {name: settings.pop(name) for name in THINGS if settings.get(name) is not None}
        self._options = {name: given for name, given in things.items() if _is_nameless(given)}
        self._named = {
            name: choosing.table_of(name, given) for name, given in things.items() if not _is_nameless(given)
        }
        self._settings = settings

    @classmethod
    def read(cls, path: Path | str, axes: Mapping[str, Any], settings: Mapping[str, Any]) -> Grid:
        """Read a grid from a TOML file: settings as of one run, and a table `axes` of lists.

        Given axes and settings replace those of the file. A given setting also replaces its axis there.
        """
        found = read_toml(path)
        there = found.pop("axes", {})
        if not isinstance(there, Mapping):
            raise InputError(
                f"{path}: axes should be a table, [axes], of lists", code="bad-value", field="axes"
            )
        for name in PLURALS.keys() & found.keys():
            raise InputError(
                f"{path}: {name} is an axis: write it under [axes]", code="bad-value", field=name
            )
        fixed = dict(flattened(settings, PLURALS)).keys()
        given = flattened(there, PLURALS)
        varied = {name: values for name, values in given if PLURALS.get(name, name) not in fixed}
        return cls(axes={**varied, **axes}, **overlay(found, settings))

    @property
    def combinations(self) -> int:
        """The number of combinations of the axes' values; the grid has at most this number of cells."""
        return math.prod(len(axis.values) for axis in self._axes.values())

    def cells(self) -> list[Cell]:
        """Return the grid's cells; a mistake in any of them is an error."""
        if not self._axes:
            raise InputError(
                "nothing to compare: give methods, rules, attacks, data sets, seeds or an axis",
                code="no-axis",
            )
        self._check_options()
        first = [self._axes[name] for name in ORDER if name in self._axes]
        axes = [*first, *(axis for name, axis in self._axes.items() if name not in ORDER)]
        cells: dict[tuple[str, ...], Cell] = {}
        for labels in product(*(axis.values for axis in axes)):
            place = {axis.setting: label for axis, label in zip(axes, labels, strict=True)}
            settings, untaken = self._resolve(place)
            place |= dict.fromkeys(untaken, "")
            if tuple(place.values()) not in cells:
                cells[tuple(place.values())] = _make_cell(place, Experiment(**settings))
        return list(cells.values())

    def run(
        self,
        out: Path | str = "fedcap-grid",
        engine: Engine | None = None,
        against: str | None = None,
        retry: bool = False,
        keep_models: bool = False,
        watcher: Watcher | None = None,
    ) -> Comparison:
        """Play the cells that `out` does not have yet; save and return the comparison of all.

        `engine` is a `LocalEngine` unless given. `against` is the method that others are compared with. With
        `retry`, cells that failed in an earlier call are played again. A failed cell does not end the grid.
        """
        cells, store = self.cells(), CellStore(out, keep_models=keep_models)
        places = [cell.place for cell in cells]
        Comparison.of([], against, places)  # a mistake in it is reported before anything starts
        status = prepare(cells, store, retry)
        (engine or LocalEngine()).run(status.left, store, watcher or LogFailures())
        made = Comparison.of(GridStatus.of(cells, store).finished, against, places)
        made.save(out)
        return made

    def _check_options(self) -> None:
        """Refuse an option that no method, or no attack, of the grid has."""
        for thing in ("method", "attack"):
            choices = self._axes[thing].values.values() if thing in self._axes else [None]
            known = {key for each in choices for key in choosing.options_of(thing, self._table(thing, each))}
            wanted = {_option(name).partition(".")[0] for name in self._axes if _owner(name) == thing != name}
            for option in sorted((wanted | self._options.get(thing, {}).keys()) - known):
                if option == "rule" in self._axes:
                    raise InputError(
                        "no method of this grid takes a rule: leave the rules out",
                        code="unknown-option",
                        field="rule",
                    )
                raise InputError(
                    f"no {thing} of this grid has an option {option!r}: {nearest(option, known)}",
                    code="unknown-option",
                    field=option,
                )

    def _resolve(self, labels: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
        """Return the settings of the cell with these labels, and the axes that do not apply to it."""
        chosen = {name: self._axes[name].values[label] for name, label in labels.items()}
        settings = dict(self._settings)
        for name, value in chosen.items():
            if _owner(name) not in THINGS:
                settings = overlay(settings, _nested(name, value))
        untaken = []
        for thing in THINGS:
            table = self._table(thing, chosen.get(thing))
            for name, value in chosen.items():
                if _owner(name) == thing != name:
                    if _takes(thing, table, _option(name)):
                        table = choosing.with_options(thing, table, _nested(_option(name), value))
                    else:
                        untaken.append(name)
            settings[thing] = table
        return settings, untaken

    def _table(self, thing: str, choice: dict[str, Any] | None) -> dict[str, Any]:
        """Return the choice of a thing with the options that the settings have for it."""
        named, options = self._named.get(thing), self._options.get(thing, {})
        if choice is None:
            choice = named or choosing.table_of(thing, choosing.UNLESS_GIVEN[thing])
        elif named is not None:
            choice = overlay({thing: named}, {thing: choice})[thing]
        fitting = {key: value for key, value in options.items() if _takes(thing, choice, key)}
        return choice if GIVEN in choice else {**fitting, **choice}


def _make_cell(labels: Place, experiment: Experiment) -> Cell:
    usual = {
        "dataset": experiment.dataset_name,
        "method": experiment.method.name,
        "rule": "",
        "attack": experiment.attack.name,
        "seed": str(experiment.seed),
    }
    return Cell(usual | dict(labels), experiment)


def _takes(thing: str, table: Mapping[str, Any], option: str) -> bool:
    """Whether a thing takes an option; a data set without it is a mistake, which the experiment reports."""
    return thing == "dataset" or option.partition(".")[0] in choosing.options_of(thing, table)


def _is_nameless(given: Any) -> bool:
    """Whether a setting has options and no name; arrays given from Python need no name."""
    return isinstance(given, Mapping) and not {"name", "data", "x"} & given.keys()


def _owner(name: str) -> str:
    """Return the thing that a setting is an option of; a rule is an option of the method."""
    return "method" if name == "rule" else name.partition(".")[0]


def _option(name: str) -> str:
    return name.partition(".")[2] or name


def _nested(name: str, value: Any) -> dict[str, Any]:
    """Return `a.b` and a value as nested settings."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]
