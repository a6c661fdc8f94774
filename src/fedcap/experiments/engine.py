"""Engines play the cells of a grid. Every engine plays a single cell with `play`."""

from __future__ import annotations

import errno
import logging
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fedcap.errors import InputError, RunError
from fedcap.experiments.store import CellStore
from fedcap.runs import BusyError, Outcome, Result, RoundRecord
from fedcap.simulation import Simulation, make_pool

if TYPE_CHECKING:
    from fedcap.experiments.grid import Cell

LOG = logging.getLogger("fedcap")
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""Errors of the system after which no cell can be written: the grid ends."""
PAUSE = 1.0
"""Seconds after which an engine looks again at a cell that another process plays."""
ADVICE = "to play several at once, put what it needs into a module"


class Watcher(Protocol):
    """Follows the progress of a grid's cells."""

    def started(self, cell: Cell) -> None:
        """A cell starts or continues."""

    def progressed(self, cell: Cell, round: int, accuracy: float | None) -> None:
        """A round of a cell is done; its accuracy is in percent if it was measured."""

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        """A cell has finished."""

    def failed(self, cell: Cell, why: str) -> None:
        """A cell has failed, for a reason of one line."""


class Engine(Protocol):
    """Plays the cells of a grid."""

    def run(self, cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
        """Play the cells that the store has no outcome of; a cell that fails does not raise."""


class LogFailures:
    """A watcher that logs failures and nothing else."""

    def started(self, cell: Cell) -> None:
        """Do nothing."""

    def progressed(self, cell: Cell, round: int, accuracy: float | None) -> None:
        """Do nothing."""

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        """Do nothing."""

    def failed(self, cell: Cell, why: str) -> None:
        """Log the cell and the reason."""
        LOG.warning("%s failed: %s", cell, why)


class Reporter(logging.Handler, ABC):
    """The watcher in a process that plays cells: it sends events and log messages to the grid's process."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    @abstractmethod
    def send(self, event: str, *facts: Any) -> None:
        """Send an event to the grid's process."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send a log message."""
        self.send("log", record.getMessage())

    def started(self, cell: Cell) -> None:
        """Send that the cell starts."""
        self.send("started")

    def progressed(self, cell: Cell, round: int, accuracy: float | None) -> None:
        """Send the round."""
        self.send("progressed", round, accuracy)


class _WatchRun:
    """The observer of a run that notifies a watcher."""

    def __init__(self, cell: Cell, watcher: Watcher) -> None:
        self._cell, self._watcher = cell, watcher

    def started(self, simulation: Simulation) -> None:
        """Notify the start."""
        self._watcher.started(self._cell)

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Notify the round."""
        accuracy = None if record.accuracy is None else record.accuracy.best
        self._watcher.progressed(self._cell, record.round, accuracy)

    def finished(self, result: Result) -> None:
        """Do nothing: the watcher is notified once the outcome is written."""


def play(cell: Cell, store: CellStore, watcher: Watcher) -> bool:
    """Play a cell in this process, on one thread, and write its outcome, or why it failed.

    Return False if another process is playing it. A cell that was started continues. `RunError` is raised
    only if nothing more can be written.
    """
    try:
        return _play(cell, store, watcher)
    except OSError as error:
        raise cannot_write(store, error) from error


def _play(cell: Cell, store: CellStore, watcher: Watcher) -> bool:
    try:
        with make_pool(1) as pool:
            cell.experiment.run(store.directory(cell), pool, [_WatchRun(cell, watcher)])
        outcome = store.save(cell)
    except BusyError:
        return False
    except Exception as error:
        if isinstance(error, OSError) and error.errno in CANNOT_WRITE:
            raise
        why = one_line(error)
        store.fail(cell, why, traceback.format_exc(), anew=isinstance(error, InputError))
        watcher.failed(cell, why)
    else:
        watcher.finished(cell, outcome)
    return True


def play_here(cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
    """Play cells in this process, one after the other; wait for a cell that another process plays."""
    for cell in cells:
        while not is_settled(cell, store, watcher) and not play(cell, store, watcher):
            time.sleep(PAUSE)


def is_settled(cell: Cell, store: CellStore, watcher: Watcher) -> bool:
    """Whether a cell has finished or failed, perhaps in another grid; if so, notify the watcher."""
    outcome, failure = store.outcome(cell), store.failure(cell)
    if outcome is not None:
        watcher.finished(cell, outcome)
    elif failure is not None:
        watcher.failed(cell, failure.why)
    return outcome is not None or failure is not None


def cannot_write(store: CellStore, error: OSError) -> RunError:
    """Return the error that ends a grid: nothing more can be written."""
    return RunError(f"cannot write to {store.root}: {error.strerror or error}; finished runs stay there")


def one_line(error: Exception) -> str:
    """Return an error as one line."""
    known = isinstance(error, InputError | RunError)
    return " ".join((str(error) if known else f"{type(error).__name__}: {error}").split())
