"""A worker process of a grid: takes cells from its pipe, plays each on one thread, and tells how far it is.

It ends as soon as the pipe is closed, whatever it is doing: if the grid was killed, nobody waits for it. It
is started with Ctrl-C (SIGINT) blocked; the parent handles that.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from fedcap.errors import RunError
from fedcap.experiments.cells import Cell
from fedcap.experiments.engines.base import Teller, play
from fedcap.experiments.engines.local import Opening
from fedcap.runs import Outcome

NICENESS = 19


class _Teller(Teller):
    """Tells everything through the pipe."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self._pipe = pipe

    def tell(self, event: str, *facts: Any) -> None:
        """Send a message; if nobody is there any more, this process is about to end."""
        with suppress(ConnectionError):
            self._pipe.send((event, *facts))

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        """Tell the outcome."""
        self.tell("finished", outcome)

    def failed(self, cell: Cell, why: str) -> None:
        """Tell of the failure."""
        self.tell("failed", why)


def main(descriptor: int) -> None:
    """Play the cells that come through the pipe.

    Besides what a watcher is told, the answers are: `done`; `elsewhere` if another process plays the cell;
    `refused` and why, if it cannot be loaded; `ended` and why, if nothing more can be written; `said` and a
    line for the user.
    """
    pipe = Connection(descriptor)
    opening: Opening = pipe.recv()
    sys.path[:] = opening.path
    if opening.nice:
        os.nice(NICENESS)
    teller = _Teller(pipe)
    logging.getLogger("fedcap").addHandler(teller)
    cells: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, cells), daemon=True).start()
    while True:
        try:
            cell = pickle.loads(cells.get())
        except Exception as error:
            teller.tell("refused", f"a worker process cannot load it ({type(error).__name__}: {error})")
            continue
        try:
            teller.tell("done" if play(cell, opening.store, teller) else "elsewhere")
        except RunError as error:
            teller.tell("ended", str(error))


def _receive(pipe: Connection, cells: SimpleQueue[bytes]) -> None:
    """Queue what comes; end the process when the pipe is closed."""
    with suppress(EOFError, ConnectionError):
        while True:
            cells.put(pipe.recv())
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
