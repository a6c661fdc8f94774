"""What happens on a node of a Ray cluster: a task plays a cell, and hands back the small files of its run.

No disk is shared: the cell is played in scratch space of its node.
"""

from __future__ import annotations

import logging
import pickle
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from fedcap.experiments.cells import Cell
from fedcap.experiments.engines.base import Teller, explained, play
from fedcap.experiments.store import CellStore
from fedcap.files import write_aside
from fedcap.runs import CHECKPOINT, CONFIG, MIXING, PROVENANCE, RESULT, ROUNDS, Outcome, RunDirectory
from fedcap.runs.outcome import Failure

LOG = logging.getLogger("fedcap")
PATIENCE = 10.0
"""Seconds in which the board must answer."""
FILES = (CONFIG, PROVENANCE, MIXING, ROUNDS, CHECKPOINT, RESULT)
"""What is handed back of a run's directory, in the order in which it is written; the result comes last."""


class Board:
    """An actor beside the grid's own process, where tasks leave word of how far they are."""

    def __init__(self) -> None:
        self._words: list[tuple[str, str, tuple[Any, ...]]] = []

    def leave(self, name: str, event: str, *facts: Any) -> None:
        """Take a word on a cell."""
        self._words.append((name, event, facts))

    def take(self) -> list[tuple[str, str, tuple[Any, ...]]]:
        """Return what was left since the last look."""
        words, self._words = self._words, []
        return words


class _Teller(Teller):
    """Leaves word of a cell on the board."""

    def __init__(self, board: Any, name: str) -> None:
        super().__init__()
        self._board, self._cell = board, name
        self._last: Any = None

    def tell(self, event: str, *facts: Any) -> None:
        """Leave a word."""
        self._last = self._board.leave.remote(self._cell, event, *facts)

    def wait(self) -> None:
        """Wait until the last word is on the board; without a board that answers, do not."""
        if self._last is not None:
            import ray

            with suppress(ray.exceptions.RayError):
                ray.get(self._last, timeout=PATIENCE)

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        """Do nothing: it is told once it is written down."""

    def failed(self, cell: Cell, why: str) -> None:
        """Do nothing, likewise."""


def task(message: bytes, name: str, path: Sequence[str], keep_models: bool, board: Any) -> Any:
    """Play a cell in scratch space; return the files of its run by name, or a `Failure`."""
    sys.path += [entry for entry in path if entry not in sys.path]
    teller = _Teller(board, name)
    LOG.addHandler(teller)
    try:
        cell: Cell = pickle.loads(message)
        if not cell.experiment.digest().startswith(name):
            return Failure(name, cell.place, "its node has other data, or another version of what it names")
        with tempfile.TemporaryDirectory(prefix="fedcap-") as scratch:
            return _played(cell, CellStore(scratch, keep_models=keep_models), teller)
    except Exception as error:
        return Failure(name, {}, f"its node cannot play it ({explained(error)})", traceback.format_exc())
    finally:
        LOG.removeHandler(teller)
        teller.wait()


def _played(cell: Cell, store: CellStore, teller: _Teller) -> Mapping[str, bytes] | Failure:
    store.open()
    play(cell, store, teller)
    failure = store.failure(cell)
    if failure is not None:
        return failure
    paths = [store.directory(cell) / name for name in FILES]
    return {path.name: path.read_bytes() for path in paths if path.exists()}


def write_run(directory: RunDirectory, files: Mapping[str, bytes]) -> None:
    """Write the files of a finished run, in place of what was begun there.

    If this is interrupted, what is left is a run that begins anew.
    """
    for name in (RESULT, CHECKPOINT, ROUNDS, MIXING):
        (directory.path / name).unlink(missing_ok=True)
    for name in FILES:
        if name in files:
            write_aside(directory.path / name, files[name])
