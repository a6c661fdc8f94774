"""How far a run's detectors ever went against each client.

Where the runs of grids are kept, and how they are found again without knowing the grid.

root/cells/<name>/          a run's directory, with its outcome.json once it has finished
root/failed/<name>.json     why a run failed; beside it, a run that was damaged and played anew
root/planned.json           the names of the runs that the last grid there set out to play

What a finished run came to, small enough to be kept in a repository: no weights, no rounds' records.

Tables, statistics and figures of many runs are made from outcomes alone, where neither the runs nor their
data are at hand. Accuracies and rates are in percent, of the last round and never of the best one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fedcap.runs.rounds import RoundRecord
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from pydantic import TypeAdapter
from pydantic import ValidationError
from fedcap.errors import InputError
import hashlib
import statistics
from dataclasses import field
from dataclasses import replace
from functools import cached_property
from typing import Any
from typing import TypeVar
from fedcap.errors import validation_message
from fedcap.runs.provenance import Provenance
from fedcap.runs.result import ClientResult
from fedcap.runs.result import Result
from fedcap.runs.rounds import finite
from fedcap.runs.run import Run
from fedcap.runs.settings import FREE_TO_CHANGE
from fedcap.runs.settings import Settings

@dataclass(frozen=True)
class Peaks:
    """The largest value that a detector's score had for each client, in any round before it was removed."""

    benign: Sequence[float]
    malicious: Sequence[float]

    @classmethod
    def of(cls, history: Sequence[RoundRecord], malicious: frozenset[str]) -> dict[str, Peaks]:
        """Read the peaks off the rounds' records, by score; rounds without a number do not count."""
        found: dict[str, dict[str, float]] = {}
        for record in history:
            for name, values in record.scores.items():
                peaks = found.setdefault(name, {})
                for client, value in values.items():
                    if value is not None and math.isfinite(value):
                        peaks[client] = max(value, peaks.get(client, -math.inf))
        return {
            name: cls(
                [float(f"{peaks[k]:.4g}") for k in sorted(peaks) if k not in malicious],
                [float(f"{peaks[k]:.4g}") for k in sorted(peaks) if k in malicious],
            )
            for name, peaks in found.items()
        }


CELLS, FAILED, OUTCOME, PLANNED = "cells", "failed", "outcome.json", "planned.json"


@dataclass(frozen=True)
class Failure:
    """Why a cell failed."""

    name: str
    place: Mapping[str, str]
    why: str
    """One line."""
    where: str = ""
    """The traceback, if there is one."""
    anew: bool = False
    """Whether a retry must begin anew: what the run left behind is of no use."""

    def to_json(self) -> str:
        """Return the content of its file."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)


_FAILURE: TypeAdapter[Failure] = TypeAdapter(Failure)
_NAMES: TypeAdapter[frozenset[str]] = TypeAdapter(frozenset[str])


def read_failure(path: Path) -> Failure | None:
    """Read why a cell failed; none if it did not."""
    try:
        return _FAILURE.validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValidationError:
        return Failure(path.stem, {}, f"{path} is damaged and does not say why", anew=True)


def read_planned(root: Path) -> frozenset[str]:
    """Read the names of the runs that the last grid set out to play; none if that is not known."""
    try:
        return _NAMES.validate_json((root / PLANNED).read_bytes())
    except (OSError, ValidationError):
        return frozenset()


def read_outcome(path: Path) -> Outcome | None:
    """Read an outcome; none if there is no such file."""
    try:
        return Outcome.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise InputError(f"{path} is damaged: it is no text", code="bad-file", field=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", code="missing-file", field=str(path)) from None
    except InputError as error:
        raise InputError(f"{path} is {error}", code="bad-file", field=str(path)) from None


LARGEST = 20_000
"""How many bytes an outcome may have as JSON."""
MOST_POINTS = 100
"""How many rounds a curve may have; of longer runs it has every second, every third, … and the last."""

T = TypeVar("T")


@dataclass(frozen=True)
class Curve:
    """Accuracy over the rounds that were evaluated; of long runs, over some of them."""

    rounds: Sequence[int]
    shared: Sequence[float | None]
    personal: Sequence[float]

    @classmethod
    def of(cls, history: Sequence[RoundRecord]) -> Curve:
        """Read the curve off the rounds' records."""
        points = _thinned([(r.round, r.accuracy) for r in history if r.accuracy is not None])
        return cls(
            [number for number, _ in points],
            [_rounded(accuracy.shared) for _, accuracy in points],
            [round(accuracy.personal, 2) for _, accuracy in points],
        )

    def after(self, rounds: int) -> float | None:
        """Return the better of the two readings after so many rounds; none if it was not taken then."""
        if rounds not in self.rounds:
            return None
        at = self.rounds.index(rounds)
        return max(self.shared[at] or 0.0, self.personal[at])


@dataclass(frozen=True)
class Norms:
    """The median length of benign and of malicious clients' updates, as the server measured them."""

    rounds: Sequence[int]
    benign: Sequence[float | None]
    malicious: Sequence[float | None]
    """None in rounds in which none of them was there, or none was finite."""

    @classmethod
    def of(cls, history: Sequence[RoundRecord], malicious: frozenset[str]) -> Norms | None:
        """Read the norms off the rounds' records; none if the server measured none."""
        points = _thinned([(record.round, record.norms) for record in history if record.norms])
        if not points:
            return None
        return cls(
            [number for number, _ in points],
            [_median(norms[k] for k in norms if k not in malicious) for _, norms in points],
            [_median(norms[k] for k in norms if k in malicious) for _, norms in points],
        )


@dataclass(frozen=True)
class ClientOutcome:
    """What became of one client."""

    id: str
    malicious: bool
    shared: float | None
    personal: float | None
    removed: int | None
    """The round in which it was removed."""

    @classmethod
    def of(cls, client: ClientResult) -> ClientOutcome:
        """Shorten what a result says of a client."""
        removed = None if client.removed is None else client.removed.round
        return cls(client.id, client.malicious, _rounded(client.shared), _rounded(client.personal), removed)


@dataclass(frozen=True)
class Outcome:
    """What a finished run came to."""

    digest: str
    """`Experiment.digest()` of the run."""
    settings: Mapping[str, Any]
    """Every setting, resolved, without those on which no result depends; of a path, the last part."""
    provenance: Mapping[str, Any]
    """Versions, commit, hashes of data and partition, seed."""
    tacc: float
    tacc_shared: float | None
    tacc_personal: float
    tacc_worst_client: float
    tacc_p10: float
    """The 10th percentile over the benign clients' accuracies, in the better reading."""
    dacc: float | None
    fpr: float | None
    fnr: float | None
    rounds: int
    rounds_to_removal: float | None
    rounds_to_80: int | None
    diverged: bool
    stopped: str | None
    seconds: float
    seconds_server: float
    bytes_per_round: float
    curve: Curve
    norms: Norms | None = None
    peaks: Mapping[str, Peaks] = field(default_factory=dict)
    """By score; empty if nothing was scored, or the clients are too many."""
    clients: Sequence[ClientOutcome] = field(default_factory=list)
    """Empty if the clients are so many that the outcome would be too large."""

    @classmethod
    def of(cls, run: Run) -> Outcome:
        """Sum up a finished run."""
        if run.result is None:
            raise InputError(f"{run.path} has not finished", code="unfinished-run", field=str(run.path))
        result = run.result
        settings = run.settings.model_dump(mode="json", exclude=set(FREE_TO_CHANGE))
        if where := settings["dataset"].get("path"):
            settings["dataset"]["path"] = Path(where).name
        made = cls(
            digest=run.provenance.digest,
            settings=settings,
            provenance=_brief(run.provenance),
            tacc_p10=percentile(_benign(result), 10),
            **{name: getattr(result, name) for name in AS_IN_RESULT},
            curve=Curve.of(result.history),
            norms=Norms.of(result.history, frozenset(run.provenance.malicious)),
            peaks=Peaks.of(result.history, frozenset(run.provenance.malicious)),
            clients=[ClientOutcome.of(client) for client in result.clients],
        )
        return made if len(made.to_json().encode()) <= LARGEST else replace(made, clients=[], peaks={})

    @cached_property
    def key(self) -> str:
        """The hash of the settings alone."""
        return settings_key(self.settings)

    def to_json(self) -> str:
        """Return the outcome as JSON, a line per entry."""
        content = finite(asdict(self))
        lines = (f'"{name}": {json.dumps(value, allow_nan=False)}' for name, value in content.items())
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """Read an outcome back; if it is damaged, raise an `InputError` of one line."""
        try:
            return _OUTCOME.validate_json(text)
        except ValidationError as error:
            raise InputError(f"damaged, or not the outcome of a run: {validation_message(error)}") from None


AS_IN_RESULT = (
    "tacc",
    "tacc_shared",
    "tacc_personal",
    "tacc_worst_client",
    "dacc",
    "fpr",
    "fnr",
    "rounds",
    "rounds_to_removal",
    "rounds_to_80",
    "diverged",
    "stopped",
    "seconds",
    "seconds_server",
    "bytes_per_round",
)
"""What an outcome has as the run's result does."""
_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)


def settings_key(settings: Mapping[str, Any]) -> str:
    """Return a hash of resolved settings, whatever the order of their keys.

    It tells whether a run is the one that is planned, without the data at hand. Of the user's own data it
    knows the file's name, not the folder it lies in.
    """
    known = Settings.model_validate({"checkpoint_every": 1, **settings})  # which is not in the hash
    where = known.dataset.options.get("path")
    return hashlib.sha256(f"{known.digest()} {Path(where).name if where else ''}".encode()).hexdigest()


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, with linear interpolation between the values next to it."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _benign(result: Result) -> list[float]:
    """Return the benign clients' accuracies in the last round, in the better reading."""
    accuracy = result.history[-1].accuracy
    assert accuracy is not None
    if accuracy.reading == "shared":
        return [client.shared or 0.0 for client in accuracy.clients.values()]
    return [client.personal for client in accuracy.clients.values()]


def _brief(facts: Provenance) -> dict[str, Any]:
    names = (
        "versions",
        "commit",
        "threads",
        "seed",
        "data_hash",
        "partition_hash",
        "weights",
        "computes",
        "code",
    )
    return {name: getattr(facts, name) for name in names}


def _thinned(points: Sequence[T]) -> list[T]:
    """Return at most `MOST_POINTS` of the points, evenly spread, the last among them."""
    step = -(-len(points) // MOST_POINTS)
    return list(points[::-1][:: max(1, step)][::-1])


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _median(norms: Any) -> float | None:
    """Return the median of those that are finite, to three significant digits."""
    found = [norm for norm in norms if norm is not None]
    return float(f"{statistics.median(found):.3g}") if found else None
