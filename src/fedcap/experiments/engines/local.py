"""The engine for one machine: several cells at once, each in a worker process of one thread.

Workers are started once and play cell after cell. One that dies, for lack of memory or by somebody's hand,
is replaced, and its cell is played once more before it is given up. A cell that another process is playing,
that of a second grid in the same folder, is waited for.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Self

from fedcap.errors import InputError, RunError
from fedcap.experiments.cells import Cell
from fedcap.experiments.engines.base import PAUSE, Watcher, no_room, play_here, settled
from fedcap.experiments.store import CellStore
from fedcap.simulation import NotPortableError, available_cores, carried
from fedcap.training.workers.processes import Child

LOG = logging.getLogger("fedcap")
TRIES = 2
"""How many workers may die of a cell before it is given up."""
ADVICE = "to play several at once, put what it needs into a module of its own"


@dataclass(frozen=True)
class Opening:
    """To a worker, before any cell: where modules are found, where cells are kept, how nice to be."""

    path: list[str]
    store: CellStore
    nice: bool


class LocalEngine:
    """Plays cells in processes of this machine: one per core, unless another number of slots is given."""

    def __init__(self, slots: int | None = None, nice: bool = False) -> None:
        if slots is not None and slots < 1:
            raise InputError(f"a grid needs at least one job at a time (got {slots})")
        self.slots = slots or available_cores()
        self._nice = nice

    def run(self, cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
        """Play the cells that the store has neither an outcome nor a failure of."""
        opening = Opening(sys.path, store, self._nice)
        with _Floor(self.slots, opening, watcher, cells) as floor:
            floor.work()


class _Worker(Child):
    """A process that plays cells, and the one that it is playing."""

    def __init__(self, opening: Opening) -> None:
        super().__init__("fedcap.experiments.engines.worker")
        self.cell: Cell | None = None
        self.send(opening)


class _Floor:
    """The workers of a grid and the cells that wait for them."""

    def __init__(self, slots: int, opening: Opening, watcher: Watcher, cells: Sequence[Cell]) -> None:
        self._slots, self._opening = slots, opening
        self._store, self._watcher = opening.store, watcher
        self._waiting = deque({cell.name: cell for cell in cells}.values())
        self._elsewhere: deque[tuple[float, Cell]] = deque()
        """Cells that other processes play, and when to look at each again."""
        self._here: list[Cell] = []
        """Cells that cannot go to a worker."""
        self._workers: list[_Worker] = []
        self._deaths: Counter[str] = Counter()
        self._said: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.stop()

    def work(self) -> None:
        """Play all cells."""
        while self._waiting or self._elsewhere or self._busy():
            self._look_again()
            self._hand_out()
            self._listen()
        play_here(self._here, self._store, self._watcher)

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.cell is not None]

    def _look_again(self) -> None:
        """Let cells that others played wait with the rest, once it is time."""
        while self._elsewhere and self._elsewhere[0][0] <= time.monotonic():
            self._waiting.append(self._elsewhere.popleft()[1])

    def _hand_out(self) -> None:
        """Give each worker that is free the next cell."""
        while self._waiting and len(self._busy()) < self._slots:
            cell = self._waiting.popleft()
            if settled(cell, self._store, self._watcher):
                continue
            try:
                message = carried(cell)
            except NotPortableError as why:
                self._say(f"{why}: such cells are played in this process, one after the other; {ADVICE}")
                self._here.append(cell)
                continue
            worker = next((worker for worker in self._workers if worker.cell is None), None)
            if worker is None:
                worker = _Worker(self._opening)
                self._workers.append(worker)
            worker.cell = cell
            worker.send(message)

    def _listen(self) -> None:
        """Wait for what workers have to say, or until there is a cell to look at again."""
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
                self._bury(worker)
            else:
                self._heed(worker, event, *facts)

    def _heed(self, worker: _Worker, event: str, *facts: Any) -> None:
        """Act on what a worker says of its cell: see `worker.main`."""
        cell = worker.cell
        assert cell is not None
        if event in ("started", "progressed", "finished", "failed"):
            getattr(self._watcher, event)(cell, *facts)
        elif event == "said":
            self._say(*facts)
        elif event == "ended":
            raise RunError(*facts)
        else:
            worker.cell = None
            if event == "refused":
                self._fail(cell, *facts)
            elif event == "elsewhere":
                self._elsewhere.append((time.monotonic() + PAUSE, cell))

    def _bury(self, worker: _Worker) -> None:
        """Replace a worker that died; its cell has another try, or fails."""
        cell, code = worker.cell, worker.stop()
        assert cell is not None
        self._workers.remove(worker)
        self._deaths[cell.name] += 1
        if self._deaths[cell.name] < TRIES:
            self._waiting.appendleft(cell)
        else:
            short = " (killed: was memory short?)" if code == -9 else ""
            self._fail(cell, f"{TRIES} worker processes died of it, the last with exit code {code}{short}")

    def _fail(self, cell: Cell, why: str) -> None:
        try:
            self._store.fail(cell, why)
        except OSError as error:
            raise no_room(self._store, error) from error
        self._watcher.failed(cell, why)

    def _say(self, line: str) -> None:
        """Tell what a worker has to say to the user, once."""
        if line not in self._said:
            self._said.add(line)
            LOG.warning(line)
