"""A live line on the terminal, and silence elsewhere."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedcap.simulation.loop import Simulation
from fedcap.simulation.record import Result, RoundRecord


def _progress(unit: str) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn(unit + " {task.completed}/{task.total}"),
        TextColumn("{task.fields[state]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=Console(stderr=True),
        transient=True,
    )


class RunProgress:
    """One run: round, accuracy, removed clients and the time left."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._progress = _progress("round")
        self._task: TaskID | None = None
        self._accuracy = self._removed = ""

    def started(self, simulation: Simulation) -> None:
        """Show the line, if this is a terminal."""
        if self._progress.console.is_terminal:
            name = simulation.experiment.method.name
            self._task = self._progress.add_task(
                name, total=self._rounds, completed=simulation.round, state=""
            )
            self._progress.start()

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Move on by a round."""
        if record.accuracy is not None:
            self._accuracy = f"accuracy {record.accuracy.best:.1f} %"
        removed = sum(len(past.removed) for past in simulation.history)
        self._removed = f"removed {removed}" if removed else ""
        if self._task is not None:
            state = "  ".join(filter(None, (self._accuracy, self._removed)))
            self._progress.update(self._task, advance=1, state=state)

    def finished(self, result: Result) -> None:
        """Leave the line to be taken away on exit."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Take the line away, however the run ended."""
        if self._task is not None:
            self._progress.stop()


class GridProgress:
    """Many runs: which one, and how many are left."""

    def __init__(self, cells: int) -> None:
        self._progress = _progress("run")
        self._task = self._progress.add_task("", total=cells, state="")
        self._live = self._progress.console.is_terminal

    def __enter__(self) -> Self:
        if self._live:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._progress.stop()

    def started(self, simulation: Simulation) -> None:
        """Name the run."""
        experiment = simulation.experiment
        self._progress.update(
            self._task, description=f"{experiment.method.name} under {experiment.attack.name}"
        )

    def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
        """Show how far the run is."""
        self._progress.update(self._task, state=f"round {record.round}/{simulation.experiment.rounds}")

    def finished(self, result: Result) -> None:
        """Nothing: `cell_done` counts."""

    def cell_done(self) -> None:
        """Count a run that is over."""
        self._progress.update(self._task, advance=1)
