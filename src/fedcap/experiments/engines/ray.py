"""The engine for a Ray cluster: a cell is a task of one core, and is played anew elsewhere if its node dies.

No disk is shared: a task hands back the small files of its run, and the process that runs the grid writes
them down. So a cell that is interrupted starts anew. Every node needs fedcap, the cells' own modules and
their data, in the same versions; a task checks that.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from fedcap.experiments.cells import Cell
from fedcap.experiments.engines.base import Watcher, no_room, play_here, settled
from fedcap.experiments.engines.local import ADVICE
from fedcap.experiments.engines.ray_task import Board, task, write_run
from fedcap.experiments.store import CellStore
from fedcap.runs import BusyError, RunDirectory
from fedcap.runs.outcome import Failure
from fedcap.simulation import NotPortableError, RayCluster, carried, ray_module

LOG = logging.getLogger("fedcap")
RETRIES = 3
"""How often a cell is played anew when its node, or the process that plays it, dies."""
PAUSE = 0.5
"""Seconds between two looks at how far the cells are."""


class RayEngine:
    """Plays cells on the Ray cluster at an address, or on one of this machine's cores.

    It stays connected from its first cell until it is closed, or the program ends.
    """

    def __init__(self, address: str | None = None) -> None:
        ray_module()  # if it is missing, that is told before anything starts
        self._address = address
        self._cluster: RayCluster | None = None

    def run(self, cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
        """Play the cells that the store has neither an outcome nor a failure of."""
        left = [cell for cell in cells if not settled(cell, store, watcher)]
        if left:
            self._cluster = self._cluster or RayCluster(self._address)
            with _Floor(self._cluster, store, watcher, left) as floor:
                floor.work()

    def close(self) -> None:
        """Leave the cluster; end it if it was started here."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


@dataclass(frozen=True)
class _Sent:
    """A cell that is being played, and the lock of its directory here: no other grid plays it meanwhile."""

    cell: Cell
    directory: RunDirectory


class _Floor:
    """The cells that are being played on a cluster, and those that wait."""

    def __init__(
        self, cluster: RayCluster, store: CellStore, watcher: Watcher, cells: Sequence[Cell]
    ) -> None:
        self._cluster, self._ray = cluster, cluster.ray
        self._store, self._watcher = store, watcher
        self._waiting = deque({cell.name: cell for cell in cells}.values())
        self._sent: dict[Any, _Sent] = {}
        """By Ray's reference to what the task hands back."""
        self._here: list[Cell] = []
        """Cells that cannot go to another process."""
        self._said: set[str] = set()
        self._task = self._ray.remote(num_cpus=1, max_retries=RETRIES)(task)
        self._board = self._new_board()

    def _new_board(self) -> Any:
        """Start the board on this node, so that it lives as long as the grid does."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(self._ray.get_runtime_context().get_node_id(), soft=False)
        return self._ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=here)(Board).remote()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel what is under way, and give the directories free."""
        if self._ray.is_initialized():
            for reference in self._sent:
                self._ray.cancel(reference, force=True)
            self._ray.kill(self._board)
        for sent in self._sent.values():
            sent.directory.__exit__()

    def work(self) -> None:
        """Play all cells."""
        while self._waiting or self._sent:
            elsewhere = self._hand_out()
            if self._sent:
                ready, _ = self._ray.wait(list(self._sent), num_returns=len(self._sent), timeout=PAUSE)
                self._heed()
                for reference in ready:
                    self._collect(reference)
            else:
                time.sleep(PAUSE)
            self._waiting.extend(elsewhere)
        play_here(self._here, self._store, self._watcher)

    def _hand_out(self) -> list[Cell]:
        """Send cells, as many as the cluster will soon play; return those that other grids are playing."""
        elsewhere = []
        while self._waiting and len(self._sent) < 2 * max(1, self._cluster.cores()):
            cell = self._waiting.popleft()
            if settled(cell, self._store, self._watcher):
                continue
            try:
                message = carried(cell)
                directory = RunDirectory(self._store.directory(cell)).__enter__()
            except NotPortableError as why:
                self._say(f"{why}: such cells are played in this process, one after the other; {ADVICE}")
                self._here.append(cell)
            except BusyError:
                elsewhere.append(cell)
            else:
                reference = self._task.remote(
                    message, cell.name, sys.path, self._store.keep_models, self._board
                )
                self._sent[reference] = _Sent(cell, directory)
        return elsewhere

    def _heed(self) -> None:
        """Pass on the words that were left on the board."""
        cells = {sent.cell.name: sent.cell for sent in self._sent.values()}
        try:
            words = self._ray.get(self._board.take.remote())
        except self._ray.exceptions.RayError:  # the board is being started again; no result is on it
            return
        for name, event, facts in words:
            if event == "said":
                self._say(*facts)
            elif name in cells:
                getattr(self._watcher, event)(cells[name], *facts)

    def _collect(self, reference: Any) -> None:
        """Write down what a cell came to, or why it failed."""
        sent = self._sent.pop(reference)
        cell = sent.cell
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            found = Failure(cell.name, cell.place, f"Ray gave it up: {lines[0]}", str(error))
        try:
            if isinstance(found, Failure):
                self._store.fail(cell, found.why, found.where)
                self._watcher.failed(cell, found.why)
            else:
                write_run(sent.directory, found)
                self._watcher.finished(cell, self._store.save(cell))
        except OSError as error:
            raise no_room(self._store, error) from error
        finally:
            sent.directory.__exit__()

    def _say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            LOG.warning(line)
