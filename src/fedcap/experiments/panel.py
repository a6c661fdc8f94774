"""What one table of a grid is made from: the outcomes of methods under attacks, over the same seeds.

A mean is over the seeds that are there, and says which; methods are compared over the seeds that both have.
Diverged and stopped runs count in every mean, and the mean says how many of them are in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean

from fedcap.experiments.cells import Cell, Found
from fedcap.experiments.statistics import bootstrap_interval, holm, sign_flip_p
from fedcap.report.tables import half_width
from fedcap.runs import Outcome

NO_ATTACK = "none"
_WITHIN = ("method", "rule", "attack", "seed")
"""The axes of a panel itself, with the options of methods and attacks: all else makes another panel."""


@dataclass(frozen=True)
class Estimate:
    """The mean of a figure over seeds."""

    mean: float
    half_width: float | None
    """Half the width of the mean's 95 % interval; one seed has none."""
    seeds: tuple[str, ...]
    diverged: int = 0
    stopped: int = 0
    """How many of the runs diverged, and how many stopped with nobody left."""

    @classmethod
    def of(cls, runs: Mapping[str, Outcome], figure: str) -> Estimate | None:
        """Return the mean over the runs, by seed, that have the figure; none if no run has it."""
        having = {seed: run for seed, run in runs.items() if getattr(run, figure) is not None}
        values = [float(getattr(run, figure)) for run in having.values()]
        if not values:
            return None
        return cls(
            fmean(values),
            half_width(values),
            tuple(having),
            diverged=_diverged(having.values()),
            stopped=_stopped(having.values()),
        )


@dataclass(frozen=True)
class Difference:
    """By how much a method's figure is above another's, over the seeds that both have."""

    mean: float
    interval: tuple[float, float] | None
    """The 95 % bootstrap interval; one seed has none."""
    seeds: tuple[str, ...]
    p: float
    p_holm: float
    """The exact sign-flip test's p-value, and the same adjusted for all attacks."""
    diverged: int = 0
    stopped: int = 0
    """How many of the runs diverged, and how many stopped with nobody left, of both methods together."""


@dataclass(frozen=True)
class Worst:
    """The attack under which a method's mean is lowest."""

    attack: str
    estimate: Estimate
    complete: bool
    """Whether every attack has a mean: if not, the worst may be another."""


@dataclass(frozen=True)
class Panel:
    """Methods × attacks × seeds, where all else is the same."""

    place: Mapping[str, str]
    """What is the same: the data set, and each other axis of the grid."""
    methods: Sequence[str]
    columns: Sequence[str]
    """The attacks, after `none` if runs without an attack are among them."""
    seeds: Sequence[str]
    runs: Mapping[tuple[str, str], Mapping[str, Outcome]]
    """By method and attack: the outcome of each seed that is there."""

    @property
    def attacks(self) -> list[str]:
        """The columns that are attacks."""
        return [attack for attack in self.columns if attack != NO_ATTACK]

    @property
    def title(self) -> str:
        """What is the same in all of its runs: "digits", "digits, rounds 30"."""
        others = [f"{axis} {label}" for axis, label in self.place.items() if axis != "dataset"]
        return ", ".join([self.place["dataset"], *others])

    def of(self, method: str, attack: str) -> Mapping[str, Outcome]:
        """Return a method's outcomes under an attack, by seed."""
        return self.runs.get((method, attack), {})

    def estimate(self, method: str, attack: str, figure: str = "tacc") -> Estimate | None:
        """Return the mean of a figure over the seeds that are there."""
        return Estimate.of(self.of(method, attack), figure)

    def worst(self, method: str, figure: str = "tacc") -> Worst | None:
        """Return the attack with the lowest mean, the first of equals; no attack is none of them."""
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
        """Return by how much a method is above another under each attack for which both have a seed."""
        pairs = {attack: self._pairs(method, against, attack, figure) for attack in self.columns}
        gaps = {
            attack: [getattr(ours, figure) - getattr(theirs, figure) for ours, theirs in found.values()]
            for attack, found in pairs.items()
            if found
        }
        p_values = {attack: sign_flip_p(gap) for attack, gap in gaps.items()}
        adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
        return {
            attack: Difference(
                fmean(gap),
                bootstrap_interval(gap),
                tuple(pairs[attack]),
                p_values[attack],
                adjusted[attack],
                diverged=_diverged(chain.from_iterable(pairs[attack].values())),
                stopped=_stopped(chain.from_iterable(pairs[attack].values())),
            )
            for attack, gap in gaps.items()
        }

    def _pairs(
        self, method: str, against: str, attack: str, figure: str
    ) -> dict[str, tuple[Outcome, Outcome]]:
        """Return both methods' outcomes for each seed for which both have the figure."""
        ours, theirs = self.of(method, attack), self.of(against, attack)
        pairs = {seed: (ours[seed], theirs[seed]) for seed in ours if seed in theirs}
        return {
            seed: pair
            for seed, pair in pairs.items()
            if all(getattr(run, figure) is not None for run in pair)
        }


def panels(found: Found, planned: Sequence[Cell] = ()) -> list[Panel]:
    """Sort finished cells into panels; what is planned and not finished is missing in them."""
    cells: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for cell in [*planned, *(cell for cell, _ in found)]:
        cells.setdefault(_shared(cell), []).append(cell)
    return [_panel(shared, own, found) for shared, own in cells.items()]


def row_of(cell: Cell) -> str:
    """Return what the line of a cell is called: its method, with options that vary, `fedcap (alpha 5)`."""
    return _with_options(cell.method, "method", cell)


def column_of(cell: Cell) -> str:
    """Return what the column of a cell is called: its attack, with options that vary."""
    return _with_options(cell.place["attack"], "attack", cell)


def _with_options(name: str, owner: str, cell: Cell) -> str:
    options = [
        f"{axis.removeprefix(f'{owner}.')} {label}"
        for axis, label in cell.place.items()
        if axis.startswith(f"{owner}.") and label
    ]
    return f"{name} ({', '.join(options)})" if options else name


def _shared(cell: Cell) -> tuple[tuple[str, str], ...]:
    return tuple(
        (axis, label)
        for axis, label in cell.place.items()
        if axis not in _WITHIN and not axis.startswith(("method.", "attack."))
    )


def _panel(shared: tuple[tuple[str, str], ...], cells: Sequence[Cell], found: Found) -> Panel:
    runs: dict[tuple[str, str], dict[str, Outcome]] = {}
    for cell, outcome in found:
        if _shared(cell) == shared:
            runs.setdefault((row_of(cell), column_of(cell)), {})[cell.place["seed"]] = outcome
    attacks = dict.fromkeys(map(column_of, cells))
    seeds = list(dict.fromkeys(cell.place["seed"] for cell in cells))
    return Panel(
        place=dict(shared),
        methods=list(dict.fromkeys(map(row_of, cells))),
        columns=sorted(attacks, key=lambda attack: attack != NO_ATTACK),
        seeds=seeds,
        runs={at: {seed: own[seed] for seed in seeds if seed in own} for at, own in runs.items()},
    )


def _diverged(runs: Iterable[Outcome]) -> int:
    return sum(run.diverged for run in runs)


def _stopped(runs: Iterable[Outcome]) -> int:
    return sum(run.stopped is not None for run in runs)
