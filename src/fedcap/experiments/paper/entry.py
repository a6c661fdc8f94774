"""What a table or a figure of the paper is made of: entries, each read off one kind of run.

An entry stands in a row and a column of a panel, which is one table, mostly of one data set. Entries that are
read off the same run, such as accuracy and detection, share it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fedcap.errors import InputError, nearest
from fedcap.experiments.paper.measures import MEASURES, Measure
from fedcap.experiments.paper.setups import SCALARS, Method
from fedcap.registry import spelling


@dataclass(frozen=True)
class Entry:
    """One figure: the run that it is read off, what is read, and what the paper prints."""

    dataset: str
    row: str
    column: str
    method: Method
    attack: str
    read: str = "tacc"
    """Which measure is read."""
    published: float | None = None
    panel: str = ""
    """The heading of its table; the data set if empty."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Settings besides data set, method, attack, rounds and seed; over the data set's."""

    @property
    def heading(self) -> str:
        """The heading of its table."""
        return self.panel or self.dataset

    def place(self, seed: int) -> dict[str, str]:
        """Return where its run stands: data set, method, rule, attack, seed, and other settings."""
        own = {key: value for key, value in self.method.items() if key != "rule"}
        others = {
            key: spelling(value) for key, value in self.others.items() if key not in ("dataset", "attack")
        }
        usual = {
            "dataset": spelling(self.others.get("dataset", self.dataset)),
            "method": spelling(own),
            "rule": spelling(self.method.get("rule", "")),
            "attack": spelling(self.others.get("attack", self.attack)),
            "seed": str(seed),
        }
        return usual | others

    @property
    def measure(self) -> Measure:
        """What is read off the run."""
        return MEASURES[self.read]

    def settings(self, rounds: int | None = None) -> dict[str, Any]:
        """Return the settings of the run, but for the seed; rounds are the data set's unless given."""
        others = {**SCALARS.get(self.dataset, {}), **self.others}
        named = {"dataset": self.dataset, "method": dict(self.method), "attack": self.attack}
        return named | others | ({} if rounds is None else {"rounds": rounds})


@dataclass(frozen=True)
class Item:
    """A table or a figure of the paper, or one of our own."""

    name: str
    title: str
    entries: Sequence[Entry]
    drawn: Literal["bars", "sweep", "curves", "norms"] | None = None
    """How its pictures are drawn, if it has any: see `pictures`."""
    varied: str = ""
    """What its rows are, if they are numbers."""
    note: str = ""
    """What to know before comparing."""

    def only(self, dataset: str | None = None, column: str | None = None, attack: str | None = None) -> Item:
        """Return the item with these entries alone; if there are none, tell which ones there are.

        A column is named by what stands before its colon.
        """
        kept = self.entries
        for what, wanted in (("dataset", dataset), ("column", column), ("attack", attack)):
            if wanted is None:
                continue
            names = [getattr(entry, what).partition(":")[0] for entry in kept]
            if wanted.lower() not in map(str.lower, names):
                raise InputError(f"{self.name} has no {what} {wanted!r}: {nearest(wanted, set(names))}")
            kept = [entry for entry, name in zip(kept, names, strict=True) if name.lower() == wanted.lower()]
        return replace(self, entries=tuple(kept))

    @property
    def panels(self) -> Mapping[str, Sequence[Entry]]:
        """The entries by the headings of their tables."""
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            found.setdefault(entry.heading, []).append(entry)
        return found

    @property
    def datasets(self) -> list[str]:
        """The data sets, in order."""
        return list(dict.fromkeys(entry.dataset for entry in self.entries))
