"""Every kind of figure by name, and which of them a story has anything to draw for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcap.errors import InputError
from fedcap.report.plots import courses, grids
from fedcap.report.story import Story
from fedcap.report.story.series import Course
from fedcap.report.story.story import Map

Draws = Callable[..., list[Path]]
"""Takes what is drawn and a path, and returns what was written."""


@dataclass(frozen=True)
class Kind:
    """A kind of figure of one story."""

    name: str
    line: str
    """What it shows."""
    draws: Draws
    drawn: Any
    rounds: Sequence[int] | None = None
    """The rounds that can be chosen from; none if there is nothing to choose."""

    def draw(self, path: Path, rounds: Sequence[int] | None = None) -> list[Path]:
        """Draw it as PNG, PDF or SVG, by the path's ending; without one of them, as all three.

        `rounds` are those to be shown, for a kind that has a choice. Return what was written.
        """
        if rounds is None:
            return self.draws(self.drawn, path)
        if self.rounds is None:
            raise InputError(f"{self.name} shows all rounds: leave the choice of rounds out")
        for number in rounds:
            if number not in self.rounds:
                last = f"{self.rounds[0]} to {self.rounds[-1]}" if self.rounds else "none"
                raise InputError(f"{self.name} knows nothing of round {number}: choose from {last}")
        return self.draws(self.drawn, path, rounds)


def kinds_of(story: Story) -> dict[str, Kind]:
    """Return the figures that a story has anything to draw for, by name."""
    found = [*_of_run(story.course)] if story.course is not None else []
    if story.map is not None and story.map.panels:
        found += _of_grid(story.map)
    return {kind.name: kind for kind in found}


def _of_run(course: Course) -> Iterator[Kind]:
    if course.accuracy is not None:
        yield Kind("accuracy", "accuracy per round: mean, worst and best client", courses.accuracy, course)
    if course.scores:
        yield Kind("scores", "each client's detection scores against the limit", courses.scores, course)
    if course.mixing is not None:
        line, rounds = "who is mixed from whom, in a few rounds", course.mixing.rounds
        yield Kind("mixing", line, courses.mixing, course, rounds)
    if course.attack is not None:
        yield Kind("attack", "what the attack came to in each round", courses.attack, course.attack)
    if any(client.personal is not None for client in course.clients):
        yield Kind("clients", "every client's accuracy", courses.clients, course)
    if course.costs is not None:
        yield Kind("cost", "seconds of each round by part, and bytes", courses.cost, course.costs)


def _of_grid(grid: Map) -> Iterator[Kind]:
    yield Kind("map", "methods × attacks, with intervals († diverged, ‡ stopped early)", grids.draw_map, grid)
    if any(cell.course is not None and cell.course.accuracy for cell in grid.cells):
        yield Kind("curves", "accuracy per round of each method, under each attack", grids.curves, grid)
    yield Kind(
        "worst", "each method without attack, and under its worst one (marks as in map)", grids.worst, grid
    )
