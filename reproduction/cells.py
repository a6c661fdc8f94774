"""A figure of a table: the run that it is read from, the measure, and the figure that the paper prints.

A `PaperCell` stands in a row and a column of a panel, which is one table, usually of one data set. Cells that
are read from the same run, such as accuracy and detection, share it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fedcap.errors import InputError, nearest
from fedcap.registry import spelling
from fedcap.runs import Outcome, flattened
from reproduction.setups import A_WHILE, BRIEFLY, LETTERS, SCALARS, UNTIL_REMOVED, Method
from reproduction.templates import section

POINTS: Mapping[str, float] = {"wisdm": 1.5, "cifar10": 2.0, "emnist": 2.0}
"""The largest difference of accuracies that agree, in points, by data set."""


@dataclass(frozen=True)
class Measure:
    """One figure of a run."""

    label: str
    of: Callable[[Outcome], float | None]
    digits: int = 1
    within: float | None = None
    """The largest difference that agrees; none if the measure is not judged. Accuracies have `POINTS`."""
    is_accuracy: bool = False

    def text(self, value: float | None) -> str:
        """Return a figure as text."""
        return "–" if value is None else f"{value:.{self.digits}f}"

    def tolerance(self, dataset: str) -> float | None:
        """Return the largest difference that agrees on a data set; none if it is not judged there."""
        if dataset not in POINTS:
            return None
        return POINTS[dataset] if self.is_accuracy else self.within


def _accuracy(label: str, of: Callable[[Outcome], float | None]) -> Measure:
    return Measure(label, of, is_accuracy=True)


def _after(rounds: int) -> Measure:
    return _accuracy(f"accuracy after {rounds} rounds, %", lambda run: run.curve.after(rounds))


MEASURES: Mapping[str, Measure] = {
    "tacc": _accuracy("accuracy, %", lambda run: run.tacc),
    "tacc_shared": _accuracy("accuracy of the shared model, %", lambda run: run.tacc_shared),
    "tacc_personal": _accuracy("accuracy of the personal models, %", lambda run: run.tacc_personal),
    **{f"tacc_after_{rounds}": _after(rounds) for rounds in (BRIEFLY, UNTIL_REMOVED, LETTERS, A_WHILE)},
    "dacc": Measure("honest clients kept and malicious ones removed, %", lambda run: run.dacc, within=0.05),
    "fpr": Measure("honest clients removed, %", lambda run: run.fpr, within=0.05),
    "fnr": Measure("malicious clients not removed, %", lambda run: run.fnr, within=0.05),
    "rounds_to_removal": Measure("mean round of removal", lambda run: run.rounds_to_removal),
    "rounds_to_80": Measure("first round at 80 %", lambda run: run.rounds_to_80, digits=0, within=3),
    "clients_minutes": Measure("minutes of all clients", lambda run: (run.seconds - run.seconds_server) / 60),
    "server_seconds": Measure("seconds of the server", lambda run: run.seconds_server),
    "megabytes": Measure("MB a round, both ways", lambda run: run.bytes_per_round / 1e6, digits=0),
}


@dataclass(frozen=True)
class PaperCell:
    """One figure: the run that it is read from, what is read, and the figure that the paper prints."""

    dataset: str
    row: str
    column: str
    method: Method
    attack: str
    read: str = "tacc"
    """The measure that is read."""
    published: float | None = None
    panel: str = ""
    """The heading of its table; the data set if empty."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Settings other than data set, method, attack, rounds and seed; they replace those of the data set."""

    @property
    def heading(self) -> str:
        """The heading of its table."""
        return self.panel or self.dataset

    @property
    def measure(self) -> Measure:
        """The measure that is read from the run."""
        return MEASURES[self.read]

    def place(self, seed: int) -> dict[str, str]:
        """Return the place of its run in a grid."""
        method = {key: value for key, value in self.method.items() if key != "rule"}
        others = {
            key: spelling(value)
            for key, value in flattened(self.others)
            if key.partition(".")[0] not in ("dataset", "attack")
        }
        usual = {
            "dataset": spelling(self.others.get("dataset", self.dataset)),
            "method": spelling(method),
            "rule": spelling(self.method.get("rule", "")),
            "attack": spelling(self.others.get("attack", self.attack)),
            "seed": str(seed),
        }
        return usual | others

    def settings(self, rounds: int | None = None) -> dict[str, Any]:
        """Return the settings of its run without the seed; rounds are the data set's unless given."""
        others = {**SCALARS.get(self.dataset, {}), **self.others}
        named = {"dataset": self.dataset, "method": dict(self.method), "attack": self.attack}
        return named | others | ({} if rounds is None else {"rounds": rounds})


@dataclass(frozen=True)
class Item:
    """A table or a figure of the paper, or one of ours."""

    name: str
    title: str
    cells: Sequence[PaperCell]
    drawn: Literal["bars", "sweep", "curves", "norms"] | None = None
    """How its pictures are drawn, if it has any."""
    varied: str = ""
    """What its rows are, if they are numbers."""

    @property
    def note(self) -> str:
        """What a reader must know before comparing; empty if there is nothing."""
        rounds = {"briefly": BRIEFLY, "until_removed": UNTIL_REMOVED, "letters": LETTERS, "a_while": A_WHILE}
        return section("notes", self.name, **rounds)

    def only(self, dataset: str | None = None, column: str | None = None, attack: str | None = None) -> Item:
        """Return the item with these cells only; an unknown name is answered with the known ones.

        A column is named by the text before its colon.
        """
        kept = self.cells
        for what, wanted in (("dataset", dataset), ("column", column), ("attack", attack)):
            if wanted is None:
                continue
            names = [getattr(cell, what).partition(":")[0] for cell in kept]
            if wanted.lower() not in map(str.lower, names):
                raise InputError(
                    f"{self.name} has no {what} {wanted!r}: {nearest(wanted, set(names))}",
                    code="unknown-name",
                )
            kept = [cell for cell, name in zip(kept, names, strict=True) if name.lower() == wanted.lower()]
        return replace(self, cells=tuple(kept))

    @property
    def datasets(self) -> list[str]:
        """The data sets, in order."""
        return list(dict.fromkeys(cell.dataset for cell in self.cells))
