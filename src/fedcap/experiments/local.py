"""The engine for one machine: several cells at once, each in a worker process of one thread.

Workers are started once and play cell after cell. If a worker dies, it is replaced and its cell is played
once more before it fails. A cell that another process plays, such as a second grid in the same folder, is
waited for. `concurrent.futures.ProcessPoolExecutor` is not used: when one of its processes dies, it ends all
others (`BrokenProcessPool`); its processes import the user's main script again; they survive a killed parent;
and Ctrl-C reaches them while they start.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from fedcap.errors import InputError, RunError
from fedcap.experiments.engine import (
    ADVICE,
    LOG,
    PAUSE,
    Reporter,
    Watcher,
    cannot_write,
    is_settled,
    play,
    play_here,
)
from fedcap.experiments.store import CellStore
from fedcap.runs import Outcome
from fedcap.simulation import available_cores
from fedcap.training.workers.base import NotPortableError, carried
from fedcap.training.workers.processes import Child

if TYPE_CHECKING:
    from fedcap.experiments.grid import Cell

TRIES = 2
"""The number of workers that may die of a cell before the cell fails."""


class LocalEngine:
    """Plays cells in worker processes on this machine: one per core, unless another number is given."""

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise InputError(
                f"a grid needs at least one worker (got {workers})", code="bad-value", field="workers"
            )
        self.workers = workers or available_cores()

    def run(self, cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
        """Play the cells that the store has neither an outcome nor a failure of."""
        with _Pool(self.workers, cells, store, watcher) as pool:
            pool.work()


class _Worker(Child):
    """A process that plays cells, and the cell that it is playing."""

    def __init__(self, store: CellStore) -> None:
        super().__init__("fedcap.experiments.local")
        self.cell: Cell | None = None
        self.send((sys.path, store))


class _Pool:
    """The workers of a grid, and the cells that wait for them."""

    def __init__(self, size: int, cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
        self._size, self._store, self._watcher = size, store, watcher
        self._waiting = deque({cell.name: cell for cell in cells}.values())
        self._elsewhere: deque[tuple[float, Cell]] = deque()
        """Cells that other processes play, and when to look at each again."""
        self._here: list[Cell] = []
        """Cells that cannot go to a worker."""
        self._workers: list[_Worker] = []
        self._deaths: Counter[str] = Counter()
        self._logged: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.stop()

    def work(self) -> None:
        """Play all cells."""
        while self._waiting or self._elsewhere or self._busy():
            while self._elsewhere and self._elsewhere[0][0] <= time.monotonic():
                self._waiting.append(self._elsewhere.popleft()[1])
            self._assign()
            self._receive()
        play_here(self._here, self._store, self._watcher)

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.cell is not None]

    def _assign(self) -> None:
        """Give each free worker the next cell."""
        while self._waiting and len(self._busy()) < self._size:
            cell = self._waiting.popleft()
            if is_settled(cell, self._store, self._watcher):
                continue
            try:
                message = carried(cell)
            except NotPortableError as why:
                self._log(f"{why}: such cells are played in this process, one after the other; {ADVICE}")
                self._here.append(cell)
                continue
            worker = next((worker for worker in self._workers if worker.cell is None), None)
            if worker is None:
                worker = _Worker(self._store)
                self._workers.append(worker)
            worker.cell = cell
            worker.send(message)

    def _receive(self) -> None:
        """Wait for a message of a worker, or until there is a cell to look at again."""
        busy = {worker.pipe: worker for worker in self._busy()}
        if not busy:
            if not self._waiting and self._elsewhere:
                time.sleep(PAUSE)
            return
        for pipe in wait(list(busy), PAUSE if self._elsewhere else None):
            worker = busy[pipe]  # type: ignore[index]
            try:
                event, *facts = worker.pipe.recv()
            except (EOFError, ConnectionError):
                self._replace(worker)
            else:
                self._handle(worker, event, *facts)

    def _handle(self, worker: _Worker, event: str, *facts: Any) -> None:
        """Act on a message of a worker: see `main`."""
        cell = worker.cell
        assert cell is not None
        if event in ("started", "progressed", "finished", "failed"):
            getattr(self._watcher, event)(cell, *facts)
        elif event == "log":
            self._log(*facts)
        elif event == "end":
            raise RunError(*facts)
        else:
            worker.cell = None
            if event == "refused":
                self._fail(cell, *facts)
            elif event == "elsewhere":
                self._elsewhere.append((time.monotonic() + PAUSE, cell))

    def _replace(self, worker: _Worker) -> None:
        """Remove a worker that died; its cell is tried again, or fails."""
        cell, code = worker.cell, worker.stop()
        assert cell is not None
        self._workers.remove(worker)
        self._deaths[cell.name] += 1
        if self._deaths[cell.name] < TRIES:
            self._waiting.appendleft(cell)
        else:
            hint = " (killed: was memory short?)" if code == -9 else ""
            self._fail(cell, f"{TRIES} worker processes died of it, the last with exit code {code}{hint}")

    def _fail(self, cell: Cell, why: str) -> None:
        try:
            self._store.fail(cell, why)
        except OSError as error:
            raise cannot_write(self._store, error) from error
        self._watcher.failed(cell, why)

    def _log(self, line: str) -> None:
        """Log a line, once."""
        if line not in self._logged:
            self._logged.add(line)
            LOG.warning(line)


# --- In the worker process


class _PipeReporter(Reporter):
    """Sends everything through the pipe."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self._pipe = pipe

    def send(self, event: str, *facts: Any) -> None:
        """Send a message; if the grid's process has ended, this process is about to end too."""
        with suppress(ConnectionError):
            self._pipe.send((event, *facts))

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        """Send the outcome."""
        self.send("finished", outcome)

    def failed(self, cell: Cell, why: str) -> None:
        """Send the failure."""
        self.send("failed", why)


def main(descriptor: int) -> None:
    """Play the cells that come through the pipe; end when the pipe is closed, even within a cell.

    Next to the events of a watcher, the answers are: `done`; `elsewhere` if another process plays the cell;
    `refused` with a reason if it cannot be loaded; `end` with a reason if nothing more can be written; `log`
    with a message for the user.
    """
    pipe = Connection(descriptor)
    sys.path[:], store = pipe.recv()
    reporter = _PipeReporter(pipe)
    logging.getLogger("fedcap").addHandler(reporter)
    cells: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_queue_cells, args=(pipe, cells), daemon=True).start()
    while True:
        try:
            cell = pickle.loads(cells.get())
        except Exception as error:
            reporter.send("refused", f"a worker process cannot load it ({type(error).__name__}: {error})")
            continue
        try:
            reporter.send("done" if play(cell, store, reporter) else "elsewhere")
        except RunError as error:
            reporter.send("end", str(error))


def _queue_cells(pipe: Connection, cells: SimpleQueue[bytes]) -> None:
    """Queue the cells that come; end the process when the pipe is closed."""
    with suppress(EOFError, ConnectionError):
        while True:
            cells.put(pipe.recv())
    os._exit(0)


if __name__ == "__main__":
    from fedcap.experiments.local import main as worker_main  # not the copy that is named __main__

    worker_main(int(sys.argv[1]))
