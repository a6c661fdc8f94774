"""How far a grid is: on a terminal a table of the runs that are under way, elsewhere a line now and then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from fedcap.cli.progress import PlainLines
from fedcap.errors import duration

if TYPE_CHECKING:
    from fedcap.experiments.grid import Cell
    from fedcap.experiments.store import GridStatus
    from fedcap.runs import Outcome


class GridTable:
    """The watcher of a grid: how many runs are done, failed and under way, and how far each of these is.

    It goes to stderr and disappears in the end; a run that fails leaves a line. With `quiet` it says nothing.
    """

    def __init__(self, plan: GridStatus, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._plain = None if quiet or self._console.is_terminal else PlainLines()
        self._total, self._done, self._failed = len(plan.runs), set(plan.done), set(plan.failed)
        self._left = {cell.name: cell.experiment.rounds for cell in plan.left}
        """The rounds that each run has left."""
        self._running: dict[str, tuple[Cell, int, float | None]] = {}
        self._all, self._played, self._began = sum(self._left.values()), 0, 0.0
        self._live = Live(
            console=self._console, transient=True, get_renderable=self._table, refresh_per_second=2
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.quiet and self._left:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def started(self, cell: Cell) -> None:
        """Show the run among those under way."""
        self._began = self._began or time.monotonic()
        self._running[cell.name] = (cell, 0, None)

    def progressed(self, cell: Cell, round: int, accuracy: float | None) -> None:
        """Show how far the run is."""
        self._running[cell.name] = (cell, round, accuracy)
        self._left[cell.name] = cell.experiment.rounds - round
        self._played += 1
        self._say()

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        """Count the run."""
        self._done.add(cell.name)
        self._end(cell)

    def failed(self, cell: Cell, why: str) -> None:
        """Count the run, and tell why it failed."""
        self._failed.add(cell.name)
        self._console.print(f"fedcap: {cell} failed: {why}", markup=False)
        self._end(cell)

    def _end(self, cell: Cell) -> None:
        self._running.pop(cell.name, None)
        self._left.pop(cell.name, None)
        self._say()

    def _say(self) -> None:
        """Print a plain line, if it is time for one."""
        if self._plain is not None:
            runs = "; ".join(f"{cell}, {_far(cell, at, found)}" for cell, at, found in self._running.values())
            left = sum(self._left.values())
            self._plain.show(": ".join(filter(None, (self._counts(), runs))), self._all - left, self._all)

    def _counts(self) -> str:
        failed = f", {len(self._failed)} failed" if self._failed else ""
        return f"{len(self._done)} of {self._total} runs done{failed}, {len(self._running)} under way"

    def _table(self) -> RenderableType:
        """Return what the terminal shows."""
        table = Table.grid(padding=(0, 2))
        for cell, at, found in list(self._running.values()):
            table.add_row(f"  {cell}", _far(cell, at, found))
        left = ""
        if self._played:
            pace = (time.monotonic() - self._began) / self._played
            left = f", about {duration(pace * sum(list(self._left.values())))} left"
        return Group(f"{self._counts()}{left}", table)


def _far(cell: Cell, at: int, accuracy: float | None) -> str:
    """Return how far a run is."""
    known = "" if accuracy is None else f", accuracy {accuracy:.1f} %"
    return f"round {at}/{cell.experiment.rounds}{known}"
