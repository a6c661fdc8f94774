"""What a page tells of a run, a grid or a federation: plain data, without any HTML.

Accuracies and rates are in percent. `series` has what is told of a single run; `packing` makes of it the JSON
that a page holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedcap.report.story.series import Course, Fact

Mark = Literal["ok", "warn", "bad", "none"]


@dataclass(frozen=True)
class Headline:
    """A figure that stands at the top."""

    value: str
    """As it is written: "97.2 %"."""
    label: str
    sentence: str


@dataclass(frozen=True)
class Check:
    """Something that a reader wants to be sure of."""

    mark: Mark
    """`none`: there is nothing to check, or nobody knows."""
    name: str
    words: str


@dataclass(frozen=True)
class Field:
    """A field of a grid's map: one method under one attack, over seeds."""

    mean: float | None
    half_width: float | None
    """Half the width of the mean's 95 % interval; one seed has none."""
    cells: Sequence[int]
    """The runs behind it, by their place in `Map.cells`: one for each seed."""
    seeds: Sequence[str]
    missing: int = 0
    """How many of its runs have not finished."""
    diverged: int = 0
    stopped: int = 0
    worst_client: float | None = None
    """The mean over seeds of the worst client's accuracy."""
    dacc: float | None = None
    """The mean over seeds of the share of clients rightly judged, if any were."""
    published: float | None = None
    """The paper's figure, if there is one; it is of the same reading as `read`."""
    read: float | None = None
    """Our figure in the reading that the paper prints."""
    source: str = ""
    """Where in the paper."""


@dataclass(frozen=True)
class Panel:
    """One map of a grid: methods × attacks, where all else is the same."""

    title: str
    methods: Sequence[str]
    attacks: Sequence[str]
    """`no attack` is the first, if it is there."""
    fields: Sequence[Sequence[Field]]
    """Methods × attacks."""
    worst: Sequence[int | None]
    """For each method, the place of the attack that hurts it most; none if no attack has finished."""


@dataclass(frozen=True)
class Failed:
    """A run of a grid that failed."""

    title: str
    why: str


@dataclass(frozen=True)
class Map:
    """A grid: its maps, and the story of each of its runs."""

    panels: Sequence[Panel]
    cells: Sequence[Story]
    failed: Sequence[Failed] = ()


@dataclass(frozen=True, eq=False)
class Story:
    """All that one page tells. A run and a federation have a `course`, a grid has a `map`."""

    kind: Literal["run", "grid", "federation"]
    title: str
    sentence: str
    """What ran."""
    state: Literal["finished", "stopped", "unfinished"]
    """`stopped`: it ended early, since nobody was left. `unfinished`: it may be going on."""
    played: int
    planned: int
    """Rounds; of a grid, runs."""
    headlines: Sequence[Headline] = ()
    checks: Sequence[Check] = ()
    troubles: Sequence[str] = ()
    """What could not be read, and so is not told."""
    thinned: Sequence[str] = ()
    """What was left out or made coarse, a sentence each."""
    course: Course | None = None
    map: Map | None = None
    settings: Sequence[Fact] = ()
    provenance: Sequence[Fact] = ()
    command: str = ""
    """What repeats it."""
    config: str = ""
    """The settings as TOML, which the command reads."""
