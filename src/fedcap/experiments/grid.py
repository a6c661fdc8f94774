"""A grid: every combination of methods, rules, attacks, data sets, seeds and other settings, a run each.

`Grid(methods=["fedavg", "fedcap"], attacks="all", seeds="0-4").run(out="grid")` is the whole of it. A seed
fixes partition, roster and initialisation, so cells that differ in their method alone are paired.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from fedcap.errors import InputError, nearest
from fedcap.experiments.axes import PLURALS, Axis
from fedcap.experiments.cells import Cell
from fedcap.experiments.comparison import Comparison
from fedcap.experiments.engines.base import Engine, Quiet, Watcher
from fedcap.experiments.engines.local import LocalEngine
from fedcap.experiments.plan import Plan, made_ready
from fedcap.experiments.store import CellStore
from fedcap.registry import GIVEN
from fedcap.runs import flattened, overlay, read_toml
from fedcap.simulation import Experiment
from fedcap.simulation import settings as choosing

ORDER = ("seed", "dataset", "attack", "method", "rule")
"""How cells follow each other: a seed is finished before the next, so that half a grid is of use."""
THINGS = tuple(choosing.UNLESS_GIVEN)
"""Settings that are things with options of their own."""


class Grid:
    """All combinations of the axes, over settings that they have in common."""

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
        """Take what varies, each as one value, a list, or a mapping from labels to values.

        `axes` are any other settings, with lists of values: `{"training.lr": [0.1, 0.05]}`. `settings` are
        those of every cell, as `Experiment` takes them. Rules, and options of methods and attacks, go to
        those that take them.
        """
        usual = {"datasets": datasets, "methods": methods, "rules": rules, "attacks": attacks, "seeds": seeds}
        given = dict(flattened(axes or {}, PLURALS)) | {
            name: each for name, each in usual.items() if each is not None
        }
        named = ((PLURALS.get(name, name), values) for name, values in given.items())
        self._axes = {setting: Axis.of(setting, values) for setting, values in named}
        things = {name: settings.pop(name) for name in THINGS if settings.get(name) is not None}
        self._options = {name: given for name, given in things.items() if _is_nameless(given)}
        self._named = {
            name: choosing.table_of(name, given) for name, given in things.items() if not _is_nameless(given)
        }
        self._settings = settings

    @classmethod
    def read(cls, path: Path | str, axes: Mapping[str, Any], settings: Mapping[str, Any]) -> Grid:
        """Read a grid from a TOML file: settings as of one run, and a table `axes` of lists.

        Axes and settings that are given here go over those of the file; a setting goes over its axis there.
        """
        found = read_toml(path)
        there = found.pop("axes", {})
        if not isinstance(there, Mapping):
            raise InputError(f"{path}: axes should be a table, [axes], of lists")
        for name in PLURALS.keys() & found.keys():
            raise InputError(f"{path}: {name} is an axis: write it under [axes]")
        fixed = dict(flattened(settings, PLURALS)).keys()
        given = flattened(there, PLURALS)
        varied = {name: values for name, values in given if PLURALS.get(name, name) not in fixed}
        return cls(axes={**varied, **axes}, **overlay(found, settings))

    def cells(self) -> list[Cell]:
        """Return the grid's cells; a mistake in any of them is an error."""
        if not self._axes:
            raise InputError("nothing to compare: give methods, rules, attacks, data sets, seeds or an axis")
        self._check_options()
        first = [self._axes[name] for name in ORDER if name in self._axes]
        axes = [*first, *(axis for name, axis in self._axes.items() if name not in ORDER)]
        cells: dict[tuple[str, ...], Cell] = {}
        for labels in product(*(axis.values for axis in axes)):
            place = {axis.setting: label for axis, label in zip(axes, labels, strict=True)}
            settings, untaken = self._resolved(place)
            place |= dict.fromkeys(untaken, "")
            if tuple(place.values()) not in cells:
                cells[tuple(place.values())] = _cell(place, Experiment(**settings))
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
        """Play the cells that `out` does not have yet, and save and return what the grid came to.

        `engine` is a `LocalEngine` unless given; `against` the method that others are compared with. Cells
        that failed in an earlier call are played again with `retry`; none of them ends the grid.
        """
        cells, store = self.cells(), CellStore(out, keep_models=keep_models)
        Comparison.of([], against, cells)  # a mistake in it is told before anything starts
        plan = made_ready(cells, store, retry)
        (engine or LocalEngine()).run(plan.left, store, watcher or Quiet())
        made = Comparison.of(Plan.of(cells, store).found, against, cells)
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
                    raise InputError("no method of this grid takes a rule: leave the rules out")
                raise InputError(
                    f"no {thing} of this grid has an option {option!r}: {nearest(option, known)}"
                )

    def _resolved(self, labels: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
        """Return the settings of the cell with these labels, and the axes that its things do not take."""
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
        """Return what is chosen with what the settings say: of that name, or for whatever takes it."""
        named, options = self._named.get(thing), self._options.get(thing, {})
        if choice is None:
            choice = named or choosing.table_of(thing, choosing.UNLESS_GIVEN[thing])
        elif named is not None:
            choice = overlay({thing: named}, {thing: choice})[thing]
        fitting = {key: value for key, value in options.items() if _takes(thing, choice, key)}
        return choice if GIVEN in choice else {**fitting, **choice}


def _cell(labels: Mapping[str, str], experiment: Experiment) -> Cell:
    usual = {
        "dataset": experiment.dataset_name,
        "method": experiment.method.name,
        "rule": "",
        "attack": experiment.attack.name,
        "seed": str(experiment.seed),
    }
    return Cell(usual | dict(labels), experiment)


def _takes(thing: str, table: Mapping[str, Any], option: str) -> bool:
    """Whether a thing takes an option; a data set without it is a mistake, which the experiment tells."""
    return thing == "dataset" or option.partition(".")[0] in choosing.options_of(thing, table)


def _is_nameless(given: Any) -> bool:
    """Whether a setting is options alone, for whatever has them; arrays of one's own need no name."""
    return isinstance(given, Mapping) and not {"name", "data", "x"} & given.keys()


def _owner(name: str) -> str:
    """Return what a setting is an option of: rules are the methods'."""
    return "method" if name == "rule" else name.partition(".")[0]


def _option(name: str) -> str:
    return name.partition(".")[2] or name


def _nested(name: str, value: Any) -> dict[str, Any]:
    """Return `a.b` and a value as nested settings."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]
