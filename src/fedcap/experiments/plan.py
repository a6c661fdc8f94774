"""What there is to do in a grid: which of its cells are done, which failed, which are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedcap.experiments.cells import Cell, Found
from fedcap.experiments.store import CellStore
from fedcap.runs import Outcome
from fedcap.runs.outcome import Failure


@dataclass(frozen=True)
class Plan:
    """The cells of a grid and how each of them stands; cells with one name are one run."""

    cells: Sequence[Cell]
    done: Mapping[str, Outcome]
    """By the cells' names."""
    failed: Mapping[str, Failure]

    @classmethod
    def of(cls, cells: Sequence[Cell], store: CellStore) -> Plan:
        """Look the cells up in a store."""
        names = {cell.name: cell for cell in cells}
        outcomes = {name: store.outcome(cell) for name, cell in names.items()}
        done = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
        failures = {name: store.failure(cell) for name, cell in names.items() if name not in done}
        return cls(cells, done, {name: failure for name, failure in failures.items() if failure is not None})

    @property
    def runs(self) -> Sequence[Cell]:
        """One cell of each name."""
        return list({cell.name: cell for cell in self.cells}.values())

    @property
    def left(self) -> Sequence[Cell]:
        """The runs that are yet to be played."""
        return [cell for cell in self.runs if cell.name not in self.done and cell.name not in self.failed]

    @property
    def found(self) -> Found:
        """The finished cells and what they came to."""
        return [(cell, self.done[cell.name]) for cell in self.cells if cell.name in self.done]


def made_ready(cells: Sequence[Cell], store: CellStore, retry: bool = False) -> Plan:
    """Create the store's folders, look the cells up, and write down there which of them are left.

    With `retry`, those that failed are left again.
    """
    _ = [cell.name for cell in cells]  # data that are missing are told before there is a folder
    store.open()
    plan = Plan.of(cells, store)
    if retry and plan.failed:
        for cell in plan.runs:
            if cell.name in plan.failed:
                store.forget(cell)
        plan = Plan.of(cells, store)
    store.plan(plan.left)
    return plan
