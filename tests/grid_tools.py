"""What the tests of grids share: a tiny grid, an engine that plays in this process, a watcher that notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedcap.experiments.engine import Watcher, play
from fedcap.experiments.grid import Cell
from fedcap.experiments.store import CellStore
from fedcap.runs import Outcome

TINY: dict[str, Any] = {
    "dataset": {"clients": 4, "samples": 20},
    "training": {"epochs": 1},
    "malicious": 0.25,
    "rounds": 2,
    "workers": 1,
}
"""Settings of cells of a tenth of a second."""
FLAGS = [
    *("--set", "dataset.clients=4", "--set", "dataset.samples=20"),
    *("--set", "training.epochs=1", "--set", "malicious=0.25", "--rounds", "2"),
]
"""The same on the command line."""
TROUBLE = '''
"""Attacks that do harm to whoever plays them."""

import os, signal
from dataclasses import dataclass

from fedcap.attacks import Attack


@dataclass(frozen=True)
class Breaks(Attack):
    """Fail."""

    def craft(self, view):
        raise ZeroDivisionError("no luck")


@dataclass(frozen=True)
class Dies(Attack):
    """Kill the process."""

    def craft(self, view):
        os.kill(os.getpid(), signal.SIGKILL)
'''


class Here:
    """An engine that plays cells in this process."""

    def run(self, cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
        for cell in cells:
            assert play(cell, store, watcher)


class Notes:
    """A watcher that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.why: dict[str, str] = {}

    def started(self, cell: Cell) -> None:
        self.told.append(("started", str(cell)))

    def progressed(self, cell: Cell, round: int, accuracy: float | None) -> None:
        self.told.append((f"round {round}", str(cell)))

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        self.told.append(("finished", str(cell)))

    def failed(self, cell: Cell, why: str) -> None:
        self.told.append(("failed", str(cell)))
        self.why[str(cell)] = why

    def of(self, cell: Cell) -> list[str]:
        return [what for what, whose in self.told if whose == str(cell)]


def without_times(outcome: Outcome) -> dict[str, Any]:
    """Return all of an outcome but its times, with the hash of its final weights."""
    assert outcome.evidence is not None
    figures = {name: value for name, value in vars(outcome).items() if not name.startswith("seconds")}
    return figures | {"evidence": outcome.evidence.weights_hash}
