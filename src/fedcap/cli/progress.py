"""Progress of a command on stderr: live lines on a terminal, elsewhere a plain line every half minute.

`Progress` shows a headline and a line for each run in progress. The classes after it say what to show for one
run, a grid of runs, the demo and a download. Plain lines begin after ten seconds: quick commands print none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.live import Live
from rich.text import Text

from fedcap.cli.common import echo
from fedcap.errors import duration

if TYPE_CHECKING:
    from fedcap.experiments.grid import Cell
    from fedcap.experiments.store import GridStatus
    from fedcap.runs import Outcome, Result, RoundRecord
    from fedcap.simulation import Simulation

FIRST, EVERY = 10.0, 30.0
"""Seconds until the first plain line, and then between two lines."""
BAR = 20
"""Characters of the bar."""


class Progress:
    """A headline, how much of the work is done, and lines below it; with `quiet`, nothing is shown.

    The time left is estimated from the pace since the first `show`: work that was done before does not count.
    """

    def __init__(self, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self._quiet, self._clock = quiet, clock
        self._next = clock() + FIRST
        self._start: tuple[float, float] | None = None
        self._headline, self._lines = "", list[str]()
        self._done = 0.0
        self._total: float | None = None
        self._live = Live(
            console=self._console, transient=True, get_renderable=self._rendered, refresh_per_second=4
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def restart(self) -> None:
        """Estimate the time left from now on: the work that follows is of another kind."""
        self._start = None

    def show(self, headline: str, done: float, total: float | None, lines: Sequence[str] = ()) -> None:
        """Show how far the work is."""
        self._headline, self._lines, self._done, self._total = headline, list(lines), done, total
        now = self._clock()
        self._start = self._start or (now, done)
        if self._quiet:
            return
        if self._console.is_terminal:
            self._live.start()
        elif now >= self._next and (total is None or done < total):
            self._next = now + EVERY
            self.say("; ".join([headline + self._left(now), *lines]))

    def say(self, line: str) -> None:
        """Print a line that stays."""
        if self._quiet:
            return
        if self._live.is_started:
            self._console.print(Text(f"fedcap: {line}"), soft_wrap=True)
        else:
            echo(f"fedcap: {line}", err=True)

    def _left(self, now: float) -> str:
        began, before = self._start or (now, self._done)
        if self._total is None or self._done <= before:
            return ""
        seconds = (now - began) / (self._done - before) * (self._total - self._done)
        return f", about {duration(seconds)} left"

    def _rendered(self) -> RenderableType:
        """Return what a terminal shows; lines that are too long for it are cut."""
        bar = ""
        if self._total and self._console.width >= 80:
            full = round(BAR * min(1.0, self._done / self._total))
            filled, empty = ("#", ".") if self._console.options.ascii_only else ("█", "░")
            bar = f"{filled * full}{empty * (BAR - full)} "
        lines = [f"{bar}{self._headline}{self._left(self._clock())}", *(f"  {line}" for line in self._lines)]
        overflow: OverflowMethod = "crop" if self._console.options.ascii_only else "ellipsis"
        return Group(*(Text(line, no_wrap=True, overflow=overflow) for line in lines))


class RunProgress(Progress):
    """One run: its method, round, accuracy and number of removed clients."""

    is_started = False
    """Whether the run plays any round; a finished run is only read."""

    def started(self, simulation: Simulation) -> None:
        """Start from the round that the run is resumed from."""
        self.is_started = True
        self._rounds, self._accuracy = simulation.experiment.rounds, ""
        self._method = simulation.experiment.method.name
        self._show(simulation.round, 0)

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Show the round."""
        if record.accuracy is not None:
            self._accuracy = f"accuracy {record.accuracy.best:.1f} %"
        self._show(record.round, len(simulation.server.removed))

    def _show(self, round: int, removed: int) -> None:
        parts = (
            self._method,
            f"round {round}/{self._rounds}",
            self._accuracy,
            f"removed {removed}" * bool(removed),
        )
        self.show(", ".join(filter(None, parts)), round, self._rounds)

    def finished(self, result: Result) -> None:
        """Do nothing: the line is removed on exit."""


class GridProgress(Progress):
    """A grid: how many runs are done and failed, and the round of each run in progress.

    A failed run leaves a line.
    """

    def __init__(
        self, status: GridStatus, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(quiet, clock)
        self._runs, self._finished, self._failed = len(status.runs), set(status.done), set(status.failed)
        self._rounds = {cell.name: cell.experiment.rounds for cell in status.left}
        self._played = dict.fromkeys(self._rounds, 0)
        self._running: dict[str, str] = {}

    def started(self, cell: Cell) -> None:
        """Show the run among those in progress."""
        self._running[cell.name] = f"{cell}, round 0/{cell.experiment.rounds}"
        self._show()

    def progressed(self, cell: Cell, round: int, accuracy: float | None) -> None:
        """Show the round of a run."""
        rounds = cell.experiment.rounds
        known = "" if accuracy is None else f", accuracy {accuracy:.1f} %"
        self._running[cell.name] = f"{cell}, round {round}/{rounds}{known}"
        if not self._played.get(cell.name):  # rounds of an earlier session do not count
            self._rounds[cell.name] = rounds - round + 1
        self._played[cell.name] = round - rounds + self._rounds[cell.name]
        self._show()

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        """Count the run."""
        self._finished.add(cell.name)
        self._end(cell)

    def failed(self, cell: Cell, why: str) -> None:
        """Count the run, and print why it failed."""
        self._failed.add(cell.name)
        self.say(f"{cell} failed: {why}")
        self._end(cell)

    def _end(self, cell: Cell) -> None:
        self._running.pop(cell.name, None)
        self._rounds[cell.name] = self._played.get(cell.name, 0)
        self._show()

    def _show(self) -> None:
        failed = f", {len(self._failed)} failed" if self._failed else ""
        headline = (
            f"{len(self._finished)} of {self._runs} runs done{failed}, {len(self._running)} in progress"
        )
        self.show(
            headline, sum(self._played.values()), sum(self._rounds.values()), list(self._running.values())
        )


class DemoProgress(Progress):
    """The demo's runs, one after the other."""

    def __init__(self, runs: int, quiet: bool = False) -> None:
        super().__init__(quiet)
        self._runs, self._finished = runs, 0

    def started(self, simulation: Simulation) -> None:
        """Show which run starts."""
        self._show(simulation, simulation.round)

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Show the run's round."""
        self._show(simulation, record.round)

    def finished(self, result: Result) -> None:
        """Do nothing: `run_done` counts the runs, also those that had finished before."""

    def run_done(self) -> None:
        """Count a finished run."""
        self._finished += 1

    def _show(self, simulation: Simulation, round: int) -> None:
        experiment = simulation.experiment
        run = f"{experiment.method.name}, attack {experiment.attack.name}, round {round}/{experiment.rounds}"
        done = self._finished + round / experiment.rounds
        self.show(f"{self._finished} of {self._runs} runs done", done, self._runs, [run])


class DownloadProgress(Progress):
    """A download: called with the name of the file, the bytes that arrived, and their total."""

    _what = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how far the download is."""
        if what != self._what:
            self._what = what
            self.restart()
        whole = f" of {total / 1e6:,.0f}" if total else ""
        self.show(f"{what}, {done / 1e6:,.0f}{whole} MB", done, total or None)
