"""What the paper says of a run's setting. Who knows that hands it in: this room has no figures of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcap.report.story.story import Check


@dataclass(frozen=True)
class Said:
    """What the paper says of one setting."""

    check: Check
    """Whether the setting is the paper's."""
    rows: Sequence[str] = ()
    """What the paper calls the method, in each place where it has such a run."""
    published: float | None = None
    read: str = "tacc"
    """Which figure of a run the published one is to be compared with."""
    source: str = ""
    """Where it is printed: "Table I"."""


Paper = Callable[[Mapping[str, Any]], Said | None]
"""From resolved settings to what the paper says of them; none if it says nothing."""


def nothing_published(settings: Mapping[str, Any]) -> Said | None:
    """Say nothing: nobody has handed in what the paper says."""
    return None
