"""How far a command is: a line that moves on a terminal, and elsewhere a plain line every half a minute.

Both go to stderr. The plain lines begin after ten seconds, so that a quick command prints none.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from fedcap.errors import duration

if TYPE_CHECKING:
    from fedcap.runs import Result, RoundRecord
    from fedcap.simulation import Simulation

FIRST, EVERY = 10.0, 30.0
"""Seconds until the first plain line, and from then on between two of them."""


class PlainLines:
    """Lines for a log: what is done, how far it is, and about how long it will take."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() + FIRST
        self._start: tuple[float, float] | None = None

    def restart(self) -> None:
        """Measure the pace anew: something else is being done now."""
        self._start = None

    def show(self, what: str, done: float, total: float | None) -> None:
        """Print a line if it is time for one, and there is something left to do.

        The pace is measured from the first call: what had been done before it does not count.
        """
        now = self._clock()
        began, before = self._start = self._start or (now, done)
        if now < self._next or (total is not None and done >= total):
            return
        self._next = now + EVERY
        left = ""
        if total is not None and done > before:
            seconds = (now - began) / (done - before) * (total - done)
            left = f", about {duration(seconds)} left"
        typer.echo(f"fedcap: {what}{left}", err=True)


class LiveLine(ABC):
    """A line of progress that appears with the first `show` and is removed on exit.

    Where stderr is no terminal, plain lines take its place; with `quiet` there is neither.
    """

    def __init__(self, *columns: ProgressColumn, total: int | None = None, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            *columns,
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=total, state="")
        self.plain = None if quiet or console.is_terminal else PlainLines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, **changed: Any) -> None:
        """Change what the line says."""
        self._progress.start()
        self._progress.update(self._task, **changed)
        if self.plain is not None:
            task = self._progress.tasks[0]
            self.plain.show(self.text(), task.completed, task.total)

    @abstractmethod
    def text(self) -> str:
        """Return what a plain line says."""

    def _said(self, *more: str) -> str:
        task = self._progress.tasks[0]
        return ", ".join(filter(None, (task.description, *more, task.fields["state"])))

    def _count(self) -> str:
        task = self._progress.tasks[0]
        return f"{task.completed:.0f}/{task.total:.0f}"


def _counting(unit: str) -> tuple[ProgressColumn, ...]:
    return (
        TextColumn(unit + " {task.completed}/{task.total}"),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )


class RunProgress(LiveLine):
    """One run: round, accuracy, removed clients and the time left."""

    def __init__(self, rounds: int, quiet: bool = False) -> None:
        super().__init__(*_counting("round"), total=rounds, quiet=quiet)
        self._accuracy = ""

    def text(self) -> str:
        """Return the method, the round and the accuracy."""
        return self._said(f"round {self._count()}")

    def started(self, simulation: Simulation) -> None:
        """Name the method, and start from the round that the run is resumed from."""
        self.show(description=simulation.experiment.method.name, completed=simulation.round)

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Move on by a round."""
        if record.accuracy is not None:
            self._accuracy = f"accuracy {record.accuracy.best:.1f} %"
        removed = sum(len(past.removed) for past in simulation.history)
        state = ", ".join(filter(None, (self._accuracy, f"removed {removed}" if removed else "")))
        self.show(advance=1, state=state)

    def finished(self, result: Result) -> None:
        """Do nothing: the line is removed on exit."""


class GridProgress(LiveLine):
    """Many runs: which one, and how many are left."""

    def __init__(self, cells: int, quiet: bool = False) -> None:
        super().__init__(*_counting("run"), total=cells, quiet=quiet)

    def text(self) -> str:
        """Return which run it is, and its round."""
        return self._said(f"{self._count()} runs done")

    def started(self, simulation: Simulation) -> None:
        """Name the run."""
        experiment = simulation.experiment
        self.show(description=f"{experiment.method.name} under {experiment.attack.name}")

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Show how far the run is."""
        self.show(state=f"round {record.round}/{simulation.experiment.rounds}")

    def finished(self, result: Result) -> None:
        """Do nothing: `cell_done` counts the runs, including those that had finished before."""

    def cell_done(self) -> None:
        """Count a run that is over."""
        self.show(advance=1)


class DownloadProgress(LiveLine):
    """Called with what is being fetched, how many bytes have come, and how many there are."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(DownloadColumn(), TimeRemainingColumn(), quiet=quiet)

    def text(self) -> str:
        """Return the file and the megabytes that have come."""
        task = self._progress.tasks[0]
        whole = "" if task.total is None else f" of {task.total / 1e6:,.0f}"
        return self._said(f"{task.completed / 1e6:,.0f}{whole} MB")

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how far it is."""
        if self.plain is not None and what != self._progress.tasks[0].description:
            self.plain.restart()
        self.show(description=what, completed=done, total=total or None)
