"""Several trackers of one run, none of which can stop it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fedcap.records import Result, RoundRecord
from fedcap.registry import InputError
from fedcap.trackers.base import Tracked, Tracker, registry

LOG = logging.getLogger("fedcap")


def make_trackers(choices: Iterable[Any]) -> list[Tracker]:
    """Build trackers from names, words such as `mlflow(experiment=mine)`, or `module:Class`."""
    return [registry.build(choice) for choice in choices]


class Tracking:
    """Tells trackers of a run: `start`, then `log` for each round, then `end`.

    One that fails is told of in a line and told no more; the run goes on. What the user can mend before the
    run starts, an `InputError` of `start`, is raised.
    """

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = list(trackers)

    def start(self, run: Tracked) -> None:
        """Tell all that the run starts, or goes on."""
        self._each(lambda tracker: tracker.start(run), refuses=True)

    def log(self, record: RoundRecord) -> None:
        """Tell all of a round."""
        self._each(lambda tracker: tracker.log(record))

    def end(self, result: Result | None) -> None:
        """Tell all that the run ended; a second call does nothing."""
        self._each(lambda tracker: tracker.end(result))
        self._trackers.clear()

    def _each(self, tell: Callable[[Tracker], None], refuses: bool = False) -> None:
        for tracker in list(self._trackers):
            try:
                tell(tracker)
            except Exception as error:  # whatever a library, a server or a user's own code does
                if refuses and isinstance(error, InputError):
                    raise
                self._trackers.remove(tracker)
                why = " ".join(f"{type(error).__name__}: {error}".split())[:MOST]
                LOG.warning("tracker %s failed, the run goes on without it: %s", _name(tracker), why)


MOST = 300
"""How many letters of an error are told."""


def _name(tracker: Tracker) -> str:
    return next((n for n in registry.names() if registry.get(n) is type(tracker)), type(tracker).__name__)
