"""The base class of trackers, the figures that all of them report, and `Tracking`, which calls them.

A tracker that fails is dropped with a warning. The run continues.
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

_LOG = logging.getLogger("fedcap")
_LONGEST_ERROR = 300
"""The largest number of letters of an error in a warning."""


@dataclass(frozen=True)
class Tracked:
    """A run that starts or continues."""

    name: str
    """The name of the run."""
    directory: Path | None
    """The directory of the run; none if it has no directory."""
    settings: Mapping[str, Any]
    history: Sequence[RoundRecord] = ()
    """The rounds that were played before. Rounds of a tracker that are not among them are obsolete."""

    def folder(self, tracker: str) -> Path:
        """Return the directory of the run; raise an `InputError` if it has none."""
        if self.directory is None:
            raise InputError(
                f"tracker {tracker} writes into the run's directory: give the run one, run(out=…)",
                code="missing-directory",
            )
        return self.directory


class Tracker(ABC):
    """An object that follows a run. Its options are the fields of its dataclass."""

    def start(self, run: Tracked) -> None:  # noqa: B027  (not every tracker needs it)
        """Begin to follow a run that starts, or that continues after `run.history`."""

    @abstractmethod
    def log(self, record: RoundRecord) -> None:
        """Report a round."""

    def end(self, result: Result | None) -> None:  # noqa: B027
        """Report the result; it is none if the run was interrupted or failed."""


registry: Registry[Tracker] = Registry("tracker", Tracker, __package__)


def _parse_words(given: Any) -> Any:
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not all(isinstance(word, str) for word in listed):
        raise InputError(f'trackers are a list of names, such as ["csv"] (got {given!r})', code="wrong-type")
    make_trackers(listed)
    return listed


Words = Annotated[tuple[str, ...], BeforeValidator(_parse_words)]
"""Trackers in settings: one or several names, words such as `csv(clients=true)`, or `module:Class`."""


def make_trackers(choices: Iterable[Any]) -> list[Tracker]:
    """Build the trackers of settings."""
    return [registry.build(choice) for choice in choices]


class Tracking:
    """Calls several trackers: `start`, then `log` for each round, then `end`.

    A tracker that raises an exception is dropped with a warning. Only an `InputError` of `start` is raised:
    the user can correct it before the run starts.
    """

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = list(trackers)
        self._following: list[Tracker] = []

    def start(self, run: Tracked) -> None:
        """Start all trackers."""
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
        """Report a round to all trackers."""
        self._each(lambda tracker: tracker.log(record))

    def end(self, result: Result | None) -> None:
        """Report the end of the run to all trackers; a second call does nothing."""
        self._each(lambda tracker: tracker.end(result))
        self._following.clear()

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for tracker in list(self._following):
            try:
                call(tracker)
            except Exception as error:  # of a library, a server or the user's code
                self._following.remove(tracker)
                _warn(tracker, error)


def _warn(tracker: Tracker, error: Exception) -> None:
    name = next((n for n in registry.names() if registry.get(n) is type(tracker)), type(tracker).__name__)
    why = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_ERROR]
    _LOG.warning("tracker %s failed, the run continues without it: %s", name, why)


def needs(library: str, extra: str) -> None:
    """Raise an `InputError` that says what to install if a library is missing."""
    if importlib.util.find_spec(library) is None:
        raise InputError(
            f"{library} is not installed: pip install 'fedcap[{extra}]'", code="needs-extra", field=extra
        )


def figures(record: RoundRecord, clients: bool = False) -> dict[str, float]:
    """Return the numbers of a round by name; with `clients`, those of each client as well."""
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
        found |= _client_figures(record)
    return {name: value for name, value in found.items() if value is not None}


def _client_figures(record: RoundRecord) -> dict[str, float | None]:
    tested = {} if record.accuracy is None else record.accuracy.clients
    found: dict[str, float | None] = {}
    for client, accuracy in tested.items():
        found |= {f"client/{client}/{name}": value for name, value in asdict(accuracy).items()}
    for score, values in record.scores.items():
        found |= {f"client/{client}/{score}": value for client, value in values.items()}
    return found
