"""What a tracker is, what it is told of a run, and the figures of a round that all of them show.

Several trackers of one run, none of which can stop it.
"""

from __future__ import annotations

import importlib.util
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from fedcap.errors import InputError
from fedcap.registry import Registry
from fedcap.runs import Result, RoundRecord


@dataclass(frozen=True)
class Tracked:
    """A run that starts, or goes on."""

    name: str
    """What to call it."""
    directory: Path | None
    """Where its records are; none if it keeps none."""
    settings: Mapping[str, Any]
    history: Sequence[RoundRecord] = ()
    """The rounds that were played before. What a tracker has of any other round is no longer true."""

    def folder(self, tracker: str) -> Path:
        """Return the run's directory; refuse a run without one."""
        if self.directory is None:
            raise InputError(f"tracker {tracker} writes into the run's directory: give it one, run(out=…)")
        return self.directory


class Tracker(ABC):
    """Follows a run. Its options are the fields of its dataclass."""

    def start(self, run: Tracked) -> None:  # noqa: B027  (not every tracker needs it)
        """Be told that a run starts, or goes on after `run.history`."""

    @abstractmethod
    def log(self, record: RoundRecord) -> None:
        """Be told of a round."""

    def end(self, result: Result | None) -> None:  # noqa: B027
        """Be told the result; none if the run was interrupted or failed."""


registry: Registry[Tracker] = Registry("tracker", Tracker, __package__)


def needs(library: str, extra: str) -> None:
    """Refuse to go on without a library, and tell how to install it."""
    if importlib.util.find_spec(library) is None:
        raise InputError(
            f"{library} is not installed: pip install 'fedcap[{extra}]'", code="needs-extra", field=extra
        )


def figures(record: RoundRecord, clients: bool = False) -> dict[str, float]:
    """Return the numbers of a round by name, those it has; with `clients`, each client's too."""
    found: dict[str, float | None] = {}
    if record.accuracy is not None:
        found["accuracy/shared"] = record.accuracy.shared
        found["accuracy/personal"] = record.accuracy.personal
        found["accuracy/worst_client"] = record.accuracy.worst_client
    for name in ("participants", "refused", "suspected", "removed", "diverged"):
        found[f"clients/{name}"] = len(getattr(record, name))
    found |= {f"limit/{name}": limit for name, limit in record.limits.items()}
    found["weights_entropy"] = record.weights_entropy
    if record.attack is not None:
        found |= {f"attack/{name}": value for name, value in asdict(record.attack).items()}
    found |= {f"seconds/{part}": seconds for part, seconds in asdict(record.seconds).items()}
    found["bytes"] = record.bytes
    if clients:
        found |= _of_clients(record)
    return {name: value for name, value in found.items() if value is not None}


def _of_clients(record: RoundRecord) -> dict[str, float | None]:
    tested = {} if record.accuracy is None else record.accuracy.clients
    found: dict[str, float | None] = {}
    for client, accuracy in tested.items():
        found |= {f"client/{client}/{name}": value for name, value in asdict(accuracy).items()}
    for score, values in record.scores.items():
        found |= {f"client/{client}/{score}": value for client, value in values.items()}
    return found


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
