"""A cell of a grid: one run, and where in the grid it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fedcap.runs import Outcome, settings_key
from fedcap.simulation import Experiment


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a grid."""

    place: Mapping[str, str]
    """Axis to label: dataset, method, rule (empty if there is none to choose), attack, seed, and others."""
    experiment: Experiment

    @cached_property
    def name(self) -> str:
        """What the cell is called on disk: the start of its digest. The data must be there."""
        return self.experiment.digest()[:16]

    @cached_property
    def key(self) -> str:
        """The hash of its settings alone, as in `Outcome.key`; the data need not be there."""
        return settings_key(self.experiment.settings())

    @property
    def method(self) -> str:
        """The method with its rule, as tables call it: `fedavg+bucketing(median)`."""
        return "+".join(filter(None, (self.place["method"], self.place.get("rule"))))

    def __str__(self) -> str:
        others = (f"{axis} {label}" for axis, label in self.place.items() if label and axis not in USUAL)
        named = (self.place["dataset"], self.method, self.place["attack"], f"seed {self.place['seed']}")
        return " · ".join([*named, *others])


USUAL = ("dataset", "method", "rule", "attack", "seed")
"""The axes that every cell has, in order."""

Found = Sequence[tuple[Cell, Outcome]]
"""Finished cells and what they came to."""
