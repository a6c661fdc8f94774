"""What every engine offers, and the one way in which all of them play a cell."""

from __future__ import annotations

import errno
import logging
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from fedcap.errors import InputError, RunError
from fedcap.experiments.cells import Cell
from fedcap.experiments.store import CellStore
from fedcap.runs import BusyError, Outcome, Result, RoundRecord
from fedcap.simulation import Simulation, make_pool

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""What the system says when no cell could be written: the grid ends."""
PAUSE = 1.0
"""Seconds after which a cell that another process was playing is looked at again."""


class Watcher(Protocol):
    """Is told how far the cells of a grid are."""

    def started(self, cell: Cell) -> None:
        """Be told that a cell (re)starts."""

    def progressed(self, cell: Cell, round: int, accuracy: float | None) -> None:
        """Be told of a round of a cell, and of its accuracy in percent if it was measured."""

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        """Be told what a cell came to."""

    def failed(self, cell: Cell, why: str) -> None:
        """Be told, in a line, why a cell failed."""


class Quiet:
    """A watcher that tells of failures alone, in the log."""

    def started(self, cell: Cell) -> None:
        """Say nothing."""

    def progressed(self, cell: Cell, round: int, accuracy: float | None) -> None:
        """Say nothing."""

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        """Say nothing."""

    def failed(self, cell: Cell, why: str) -> None:
        """Say which cell failed, and why."""
        logging.getLogger("fedcap").warning("%s failed: %s", cell, why)


class Teller(logging.Handler, ABC):
    """A watcher in the process that plays a cell: passes on how far it is, and what is to be said."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    @abstractmethod
    def tell(self, event: str, *facts: Any) -> None:
        """Pass on an event, to whoever has the grid."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on what is to be said to the user."""
        self.tell("said", record.getMessage())

    def started(self, cell: Cell) -> None:
        """Tell that the cell starts."""
        self.tell("started")

    def progressed(self, cell: Cell, round: int, accuracy: float | None) -> None:
        """Tell of a round."""
        self.tell("progressed", round, accuracy)


class Engine(Protocol):
    """Plays the cells of a grid."""

    def run(self, cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
        """Play the cells that the store has no outcome of; a cell that fails is no error."""


class _Telling:
    """The observer of a run that tells a watcher."""

    def __init__(self, cell: Cell, watcher: Watcher) -> None:
        self._cell, self._watcher = cell, watcher

    def started(self, simulation: Simulation) -> None:
        """Tell that the cell starts."""
        self._watcher.started(self._cell)

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Tell of the round."""
        accuracy = None if record.accuracy is None else record.accuracy.best
        self._watcher.progressed(self._cell, record.round, accuracy)

    def finished(self, result: Result) -> None:
        """Do nothing: the watcher is told the outcome, once it is written down."""


def play(cell: Cell, store: CellStore, watcher: Watcher) -> bool:
    """Play a cell in this process, on one thread, and write down its outcome, or why it failed.

    Return whether it was played: not if another process is at it. A cell that was begun goes on. `RunError`
    is raised only if nothing more can be written.
    """
    try:
        return _play(cell, store, watcher)
    except OSError as error:
        raise no_room(store, error) from error


def no_room(store: CellStore, error: OSError) -> RunError:
    """Return the error that ends a grid: nothing more can be written."""
    return RunError(f"cannot write to {store.root}: {error.strerror or error}; what is done stays there")


def _play(cell: Cell, store: CellStore, watcher: Watcher) -> bool:
    try:
        with make_pool(1) as crew:
            cell.experiment.run(store.directory(cell), crew, [_Telling(cell, watcher)])
        outcome = store.save(cell)
    except BusyError:
        return False
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise
        why = explained(error)
        store.fail(cell, why, traceback.format_exc(), anew=isinstance(error, InputError))
        watcher.failed(cell, why)
    else:
        watcher.finished(cell, outcome)
    return True


def play_here(cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
    """Play cells in this process, one after the other; one that another process plays is waited for."""
    for cell in cells:
        while not settled(cell, store, watcher) and not play(cell, store, watcher):
            time.sleep(PAUSE)


def explained(error: Exception) -> str:
    """Return what went wrong, in a line."""
    known = isinstance(error, InputError | RunError)
    return " ".join((str(error) if known else f"{type(error).__name__}: {error}").split())


def settled(cell: Cell, store: CellStore, watcher: Watcher) -> bool:
    """Whether a cell has finished or failed, in another grid perhaps; if so, the watcher is told."""
    outcome, failure = store.outcome(cell), store.failure(cell)
    if outcome is not None:
        watcher.finished(cell, outcome)
    elif failure is not None:
        watcher.failed(cell, failure.why)
    return outcome is not None or failure is not None
