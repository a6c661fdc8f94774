"""The engine for a Ray cluster: each cell is a task of one core; it is played again if its node dies.

The nodes share no disk. A task plays its cell in scratch space and returns the small files of its run; the
grid's process writes them. So an interrupted cell starts again from its first round. Every node needs fedcap,
the user's modules and the data in the same versions; a task checks that.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from fedcap.experiments.engine import (
    ADVICE,
    LOG,
    Reporter,
    Watcher,
    cannot_write,
    is_settled,
    one_line,
    play,
    play_here,
)
from fedcap.experiments.store import CellStore
from fedcap.files import write_aside
from fedcap.runs import (
    CHECKPOINT,
    CONFIG,
    MIXING,
    PROVENANCE,
    RESULT,
    ROUNDS,
    BusyError,
    Outcome,
    RunDirectory,
)
from fedcap.runs.outcome import OUTCOME, CellFailure
from fedcap.simulation.store import STATES
from fedcap.training.workers.base import NotPortableError, carried
from fedcap.training.workers.ray import RayCluster, ray_module

if TYPE_CHECKING:
    from fedcap.experiments.grid import Cell

RETRIES = 3
"""How often a cell is played again when its node, or its process, dies."""
PAUSE = 0.5
"""Seconds between two looks at the progress of the cells."""
PATIENCE = 10.0
"""Seconds in which the message board must answer."""
FILES = (CONFIG, PROVENANCE, MIXING, ROUNDS, STATES, CHECKPOINT, RESULT)
"""The files of a run that a task returns, in the order in which they are written; the result comes last."""


class RayEngine:
    """Plays cells on the Ray cluster at an address, or on one of this machine's cores.

    It stays connected from its first cell until the program ends.
    """

    def __init__(self, address: str | None = None) -> None:
        ray_module()  # if it is missing, that is reported before anything starts
        self._address = address
        self._cluster: RayCluster | None = None

    def run(self, cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
        """Play the cells that the store has neither an outcome nor a failure of."""
        left = [cell for cell in cells if not is_settled(cell, store, watcher)]
        if left:
            self._cluster = self._cluster or RayCluster(self._address)
            with _Tasks(self._cluster, left, store, watcher) as tasks:
                tasks.work()


@dataclass(frozen=True)
class _Sent:
    """A cell that is being played, and its locked directory here, so that no other grid plays it."""

    cell: Cell
    directory: RunDirectory


class _Tasks:
    """The cells that are being played on a cluster, and those that wait."""

    def __init__(
        self, cluster: RayCluster, cells: Sequence[Cell], store: CellStore, watcher: Watcher
    ) -> None:
        self._cluster, self._ray = cluster, cluster.ray
        self._store, self._watcher = store, watcher
        self._waiting = deque({cell.name: cell for cell in cells}.values())
        self._sent: dict[Any, _Sent] = {}
        """By Ray's reference to the task's answer."""
        self._here: list[Cell] = []
        """Cells that cannot go to another process."""
        self._logged: set[str] = set()
        self._task = self._ray.remote(num_cpus=1, max_retries=RETRIES)(task)
        self._board = self._start_board()

    def _start_board(self) -> Any:
        """Start the message board on this node, so that it lives as long as the grid."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(self._ray.get_runtime_context().get_node_id(), soft=False)
        return self._ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=here)(Board).remote()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Cancel the tasks, and unlock the directories."""
        if self._ray.is_initialized():
            for reference in self._sent:
                self._ray.cancel(reference, force=True)
            self._ray.kill(self._board)
        for sent in self._sent.values():
            sent.directory.__exit__()

    def work(self) -> None:
        """Play all cells."""
        while self._waiting or self._sent:
            elsewhere = self._assign()
            if self._sent:
                ready, _ = self._ray.wait(list(self._sent), num_returns=len(self._sent), timeout=PAUSE)
                self._read_board()
                for reference in ready:
                    self._collect(reference)
            else:
                time.sleep(PAUSE)
            self._waiting.extend(elsewhere)
        play_here(self._here, self._store, self._watcher)

    def _assign(self) -> list[Cell]:
        """Send cells, two per core of the cluster; return those that other grids are playing."""
        elsewhere = []
        while self._waiting and len(self._sent) < 2 * max(1, self._cluster.cores()):
            cell = self._waiting.popleft()
            if is_settled(cell, self._store, self._watcher):
                continue
            try:
                message = carried(cell)
                directory = RunDirectory(self._store.directory(cell)).__enter__()
            except NotPortableError as why:
                self._log(f"{why}: such cells are played in this process, one after the other; {ADVICE}")
                self._here.append(cell)
            except BusyError:
                elsewhere.append(cell)
            else:
                reference = self._task.remote(
                    message, cell.name, sys.path, self._store.keep_models, self._board
                )
                self._sent[reference] = _Sent(cell, directory)
        return elsewhere

    def _read_board(self) -> None:
        """Pass on the messages of the board."""
        cells = {sent.cell.name: sent.cell for sent in self._sent.values()}
        try:
            messages = self._ray.get(self._board.take.remote())
        except self._ray.exceptions.RayError:  # the board is being started again; it holds no results
            return
        for name, event, facts in messages:
            if event == "log":
                self._log(*facts)
            elif name in cells:
                getattr(self._watcher, event)(cells[name], *facts)

    def _collect(self, reference: Any) -> None:
        """Write the run of a finished task, or why it failed."""
        sent = self._sent.pop(reference)
        cell = sent.cell
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            found = CellFailure(cell.name, cell.place, f"Ray stopped it: {lines[0]}", str(error))
        try:
            if isinstance(found, CellFailure):
                self._store.fail(cell, found.why, found.where)
                self._watcher.failed(cell, found.why)
            else:
                write_run(sent.directory, found)
                evidence = Outcome.from_json(found[OUTCOME].decode()).evidence
                self._watcher.finished(cell, self._store.save(cell, evidence))
        except OSError as error:
            raise cannot_write(self._store, error) from error
        finally:
            sent.directory.__exit__()

    def _log(self, line: str) -> None:
        if line not in self._logged:
            self._logged.add(line)
            LOG.warning(line)


def write_run(directory: RunDirectory, files: Mapping[str, bytes]) -> None:
    """Write the files of a finished run in place of those that are there.

    If this is interrupted, the run starts again from its first round.
    """
    for name in (RESULT, CHECKPOINT, STATES, ROUNDS, MIXING):
        (directory.path / name).unlink(missing_ok=True)
    for name in FILES:
        if name in files:
            write_aside(directory.path / name, files[name])


# --- On the nodes


class Board:
    """An actor next to the grid's process: tasks leave messages about their progress on it."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, str, tuple[Any, ...]]] = []

    def leave(self, name: str, event: str, *facts: Any) -> None:
        """Take a message about a cell."""
        self._messages.append((name, event, facts))

    def take(self) -> list[tuple[str, str, tuple[Any, ...]]]:
        """Return and remove all messages."""
        messages, self._messages = self._messages, []
        return messages


class _BoardReporter(Reporter):
    """Leaves messages about a cell on the board."""

    def __init__(self, board: Any, name: str) -> None:
        super().__init__()
        self._board, self._cell = board, name
        self._last: Any = None

    def send(self, event: str, *facts: Any) -> None:
        """Leave a message."""
        self._last = self._board.leave.remote(self._cell, event, *facts)

    def wait(self) -> None:
        """Wait until the last message is on the board, or for some seconds if the board does not answer."""
        if self._last is not None:
            import ray

            with suppress(ray.exceptions.RayError):
                ray.get(self._last, timeout=PATIENCE)

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        """Do nothing: the grid's process notifies its watcher once the outcome is written."""

    def failed(self, cell: Cell, why: str) -> None:
        """Do nothing, for the same reason."""


def task(message: bytes, name: str, path: Sequence[str], keep_models: bool, board: Any) -> Any:
    """Play a cell in scratch space; return the files of its run by name, or a `CellFailure`."""
    sys.path += [entry for entry in path if entry not in sys.path]
    reporter = _BoardReporter(board, name)
    LOG.addHandler(reporter)
    try:
        cell: Cell = pickle.loads(message)
        if not cell.experiment.digest().startswith(name):
            return CellFailure(name, cell.place, "its node has other data, or another version of a module")
        with tempfile.TemporaryDirectory(prefix="fedcap-") as scratch:
            return _played(cell, CellStore(scratch, keep_models=keep_models), reporter)
    except Exception as error:
        return CellFailure(name, {}, f"its node cannot play it ({one_line(error)})", traceback.format_exc())
    finally:
        LOG.removeHandler(reporter)
        reporter.wait()


def _played(cell: Cell, store: CellStore, reporter: Reporter) -> Mapping[str, bytes] | CellFailure:
    store.open()
    play(cell, store, reporter)  # type: ignore[arg-type]
    failure = store.failure(cell)
    if failure is not None:
        return failure
    paths = [store.directory(cell) / name for name in (*FILES, OUTCOME)]
    return {path.name: path.read_bytes() for path in paths if path.exists()}
