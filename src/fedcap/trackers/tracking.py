"""Several trackers of one run, none of which can stop it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from fedcap.errors import InputError
from fedcap.records import Result, RoundRecord
from fedcap.trackers.base import Tracked, Tracker, registry

LOG = logging.getLogger("fedcap")


def _words(given: Any) -> Any:
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not all(isinstance(word, str) for word in listed):
        raise InputError(f'trackers are a list of names, such as ["csv"] (got {given!r})')
    make_trackers(listed)
    return listed


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
"""Trackers as settings have them: one or several of a name, a word `csv(clients=true)`, or `module:Class`."""


def make_trackers(choices: Iterable[Any]) -> list[Tracker]:
    """Build trackers from what settings say."""
    return [registry.build(choice) for choice in choices]


MOST = 300
"""How many letters of an error are told."""


class Tracking:
    """Tells trackers of a run: `start`, then `log` for each round, then `end`.

    One that fails is told of in a line and told no more; the run goes on. What the user can mend before the
    run starts, an `InputError` of `start`, is raised.
    """

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = list(trackers)
        self._following: list[Tracker] = []

    def start(self, run: Tracked) -> None:
        """Tell all that the run starts, or goes on."""
        for tracker in self._trackers:
            try:
                tracker.start(run)
            except InputError:
                raise
            except Exception as error:
                _warn(tracker, error)
            else:
                self._following.append(tracker)

    def log(self, record: RoundRecord) -> None:
        """Tell all of a round."""
        self._each(lambda tracker: tracker.log(record))

    def end(self, result: Result | None) -> None:
        """Tell all that the run ended; a second call does nothing."""
        self._each(lambda tracker: tracker.end(result))
        self._following.clear()

    def _each(self, tell: Callable[[Tracker], None]) -> None:
        for tracker in list(self._following):
            try:
                tell(tracker)
            except Exception as error:  # whatever a library, a server or a user's own code does
                self._following.remove(tracker)
                _warn(tracker, error)


def _warn(tracker: Tracker, error: Exception) -> None:
    name = next((n for n in registry.names() if registry.get(n) is type(tracker)), type(tracker).__name__)
    why = " ".join(f"{type(error).__name__}: {error}".split())[:MOST]
    LOG.warning("tracker %s failed, the run goes on without it: %s", name, why)
