"""What is left out so that a page stays small, and the sentences that tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from fedcap.errors import plural

ROOM = 150_000
"""How many numbers an array may have."""
MOST_ROUNDS = 500
"""How many rounds a series has."""
MOST_NAME, MOST_WORDS = 60, 300
"""How many characters a name has, and a reason."""
MOST_EVENTS = 600
"""How many refusals and the like are listed; removals are all there."""

T = TypeVar("T")


class Thinning:
    """Makes things fit, and notes what it did. `room` is how many numbers an array may have."""

    def __init__(self, room: int = ROOM) -> None:
        self.room = room
        self._said: dict[str, None] = {}

    @property
    def sentences(self) -> list[str]:
        """What was left out or made coarse so far."""
        return list(self._said)

    def say(self, sentence: str) -> None:
        """Note that something was left out."""
        self._said[sentence] = None

    def rounds(self, what: str, points: Sequence[T], width: int = 1) -> list[T]:
        """Return points, one for each round, or as many of them, evenly spread, as there is room for.

        `width` is how many numbers there are of each. The first and the last are always among them.
        """
        most = max(2, min(MOST_ROUNDS, self.room // max(1, width)))
        if len(points) <= most:
            return list(points)
        self.say(f"{what}: {most} of {plural(len(points), 'round')} are shown, evenly spread.")
        return [points[at] for at in np.linspace(0, len(points) - 1, most).round().astype(int)]

    def name(self, text: str) -> str:
        """Return a name, cut if it is long."""
        return self._cut(text, MOST_NAME, "Names")

    def words(self, text: str) -> str:
        """Return a sentence that somebody else wrote, cut if it is long."""
        return self._cut(text, MOST_WORDS, "Reasons")

    def _cut(self, text: str, most: int, what: str) -> str:
        if len(text) <= most:
            return text
        self.say(f"{what} longer than {most} characters are cut.")
        return text[: most - 1] + "…"
