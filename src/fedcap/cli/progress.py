"""A line of progress on the terminal; nothing if the output is not a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from fedcap.records import Result, RoundRecord
    from fedcap.simulation import Simulation


class LiveLine:
    """A line of progress that appears with the first `show` and is removed on exit."""

    def __init__(self, *columns: ProgressColumn, total: int | None = None) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            *columns,
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=total, state="")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, **changed: Any) -> None:
        """Change what the line says."""
        self._progress.start()
        self._progress.update(self._task, **changed)


def _counting(unit: str) -> tuple[ProgressColumn, ...]:
    return (
        TextColumn(unit + " {task.completed}/{task.total}"),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )


class RunProgress(LiveLine):
    """One run: round, accuracy, removed clients and the time left."""

    def __init__(self, rounds: int) -> None:
        super().__init__(*_counting("round"), total=rounds)
        self._accuracy = ""

    def started(self, simulation: Simulation) -> None:
        """Name the method, and start from the round that the run is resumed from."""
        self.show(description=simulation.experiment.method.name, completed=simulation.round)

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Move on by a round."""
        if record.accuracy is not None:
            self._accuracy = f"accuracy {record.accuracy.best:.1f} %"
        removed = sum(len(past.removed) for past in simulation.history)
        state = "  ".join(filter(None, (self._accuracy, f"removed {removed}" if removed else "")))
        self.show(advance=1, state=state)

    def finished(self, result: Result) -> None:
        """Do nothing: the line is removed on exit."""


class GridProgress(LiveLine):
    """Many runs: which one, and how many are left."""

    def __init__(self, cells: int) -> None:
        super().__init__(*_counting("run"), total=cells)

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

    def __init__(self) -> None:
        super().__init__(DownloadColumn(), TimeRemainingColumn())

    def __call__(self, what: str, done: int, total: int) -> None:
        """Show how far it is."""
        self.show(description=what, completed=done, total=total or None)
