"""The outcome of a finished run, and the files in which a grid keeps the outcomes and failures of its runs.

An `Outcome` is a summary of at most 20 kB, small enough for a repository: it has no weights and no records of
rounds. Tables, statistics and figures of many runs are made from outcomes, without the runs and their data.
Accuracies and rates are in percent and those of the last round, never of the best one.

The directory of a grid:

    cells/<name>/          a run directory, with outcome.json once the run has finished
    failed/<name>.json     why a run failed
    planned.json           the names of the runs of the grid that ran last
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedcap.errors import InputError, validation_message
from fedcap.runs.provenance import Provenance
from fedcap.runs.result import ClientResult, Result
from fedcap.runs.rounds import RoundRecord, finite
from fedcap.runs.run import Run
from fedcap.runs.settings import FREE_TO_CHANGE, Settings

CELLS, FAILED, OUTCOME, PLANNED = "cells", "failed", "outcome.json", "planned.json"
"""The names of files and folders in the directory of a grid."""

LARGEST = 20_000
"""The largest size of an outcome as JSON, in bytes."""
_MOST_POINTS = 100
"""The largest number of rounds in a curve. Of longer runs it has every k-th round, and the last."""
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
"""The fields that an outcome copies from the result of the run."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Curve:
    """The accuracy in the evaluated rounds; of long runs, in some of them."""

    rounds: Sequence[int]
    shared: Sequence[float | None]
    personal: Sequence[float]

    @classmethod
    def of(cls, history: Sequence[RoundRecord]) -> Curve:
        """Return the curve of these records."""
        points = _thinned([(r.round, r.accuracy) for r in history if r.accuracy is not None])
        return cls(
            [number for number, _ in points],
            [_rounded(accuracy.shared) for _, accuracy in points],
            [round(accuracy.personal, 2) for _, accuracy in points],
        )

    def after(self, rounds: int) -> float | None:
        """Return the accuracy in the better reading after this number of rounds; none if not in the curve."""
        if rounds not in self.rounds:
            return None
        at = self.rounds.index(rounds)
        return max(self.shared[at] or 0.0, self.personal[at])


@dataclass(frozen=True)
class Norms:
    """The median length of the updates of honest and of malicious clients, as the server measured them."""

    rounds: Sequence[int]
    benign: Sequence[float | None]
    malicious: Sequence[float | None]
    """None in rounds without such updates, or without finite ones."""

    @classmethod
    def of(cls, history: Sequence[RoundRecord], malicious: frozenset[str]) -> Norms | None:
        """Return the norms of these records; none if the server did not measure them."""
        points = _thinned([(record.round, record.norms) for record in history if record.norms])
        if not points:
            return None
        return cls(
            [number for number, _ in points],
            [_median(norms[k] for k in norms if k not in malicious) for _, norms in points],
            [_median(norms[k] for k in norms if k in malicious) for _, norms in points],
        )


@dataclass(frozen=True)
class Peaks:
    """The largest value of a detector's score for each client, over the rounds before its removal."""

    benign: Sequence[float]
    malicious: Sequence[float]

    @classmethod
    def of(cls, history: Sequence[RoundRecord], malicious: frozenset[str]) -> dict[str, Peaks]:
        """Return the peaks of these records, by score; rounds without a finite value do not count."""
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


@dataclass(frozen=True)
class ClientOutcome:
    """The outcome of one client."""

    id: str
    malicious: bool
    shared: float | None
    personal: float | None
    removed: int | None
    """The round in which the client was removed; none if it was not."""

    @classmethod
    def of(cls, client: ClientResult) -> ClientOutcome:
        """Return the outcome of a client, given its result."""
        removed = None if client.removed is None else client.removed.round
        return cls(client.id, client.malicious, _rounded(client.shared), _rounded(client.personal), removed)


@dataclass(frozen=True)
class Outcome:
    """The summary of a finished run."""

    digest: str
    """`Experiment.digest()` of the run."""
    settings: Mapping[str, Any]
    """All settings, resolved, without those that do not affect the results; of a path, the last part."""
    provenance: Mapping[str, Any]
    """Versions, commit, hashes of data and partition, seed."""
    tacc: float
    tacc_shared: float | None
    tacc_personal: float
    tacc_worst_client: float
    tacc_p10: float
    """The 10th percentile of the honest clients' accuracies, in the better reading."""
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
    """By score; empty without scores, or if the outcome would be larger than `LARGEST`."""
    clients: Sequence[ClientOutcome] = field(default_factory=list)
    """Empty if the outcome would be larger than `LARGEST`."""

    @classmethod
    def of(cls, run: Run) -> Outcome:
        """Return the outcome of a finished run."""
        if run.result is None:
            raise InputError(f"{run.path} has not finished: continue it with fedcap run --resume {run.path}")
        result = run.result
        settings = run.settings.model_dump(mode="json", exclude=set(FREE_TO_CHANGE))
        if where := settings["dataset"].get("path"):
            settings["dataset"]["path"] = Path(where).name
        outcome = cls(
            digest=run.provenance.digest,
            settings=settings,
            provenance=_short_provenance(run.provenance),
            tacc_p10=percentile(_honest_accuracies(result), 10),
            **{name: getattr(result, name) for name in AS_IN_RESULT},
            curve=Curve.of(result.history),
            norms=Norms.of(result.history, frozenset(run.provenance.malicious)),
            peaks=Peaks.of(result.history, frozenset(run.provenance.malicious)),
            clients=[ClientOutcome.of(client) for client in result.clients],
        )
        return outcome if len(outcome.to_json().encode()) <= LARGEST else replace(outcome, clients=[], peaks={})

    @cached_property
    def key(self) -> str:
        """The hash of the settings, as `settings_key` computes it."""
        return settings_key(self.settings)

    def to_json(self) -> str:
        """Return the outcome as JSON with one entry per line."""
        content = finite(asdict(self))
        lines = (f'"{name}": {json.dumps(value, allow_nan=False)}' for name, value in content.items())
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """Read an outcome back; raise an `InputError` if it is damaged."""
        try:
            return _OUTCOME.validate_json(text)
        except ValidationError as error:
            raise InputError(f"damaged, or not the outcome of a run: {validation_message(error)}") from None


_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)


def settings_key(settings: Mapping[str, Any]) -> str:
    """Return a hash of resolved settings that does not depend on the order of their keys.

    It identifies a planned run without its data. Of the user's own data it has the name of the file, not the
    folder.
    """
    parsed = Settings.model_validate({"checkpoint_every": 1, **settings})  # the hash does not include it
    path = parsed.dataset.options.get("path")
    return hashlib.sha256(f"{parsed.digest()} {Path(path).name if path else ''}".encode()).hexdigest()


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile, with linear interpolation between neighbouring values."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _honest_accuracies(result: Result) -> list[float]:
    """Return the accuracies of the honest clients in the last round, in the better reading."""
    accuracy = result.history[-1].accuracy
    assert accuracy is not None
    if accuracy.reading == "shared":
        return [client.shared or 0.0 for client in accuracy.clients.values()]
    return [client.personal for client in accuracy.clients.values()]


def _short_provenance(facts: Provenance) -> dict[str, Any]:
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


def _thinned(points: Sequence[_T]) -> list[_T]:
    """Return at most `_MOST_POINTS` of the points, evenly spaced, with the last one."""
    step = -(-len(points) // _MOST_POINTS)
    return list(points[::-1][:: max(1, step)][::-1])


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _median(norms: Iterable[float | None]) -> float | None:
    """Return the median of the finite norms, to three significant digits."""
    found = [norm for norm in norms if norm is not None]
    return float(f"{statistics.median(found):.3g}") if found else None


def read_outcome(path: Path) -> Outcome | None:
    """Read an outcome; return none if the file does not exist."""
    try:
        return Outcome.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise InputError(f"{path} is damaged: it is not text") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except InputError as error:
        raise InputError(f"{path} is {error}") from None


@dataclass(frozen=True)
class Failure:
    """Why a run of a grid failed."""

    name: str
    place: Mapping[str, str]
    why: str
    """One line."""
    where: str = ""
    """The traceback, or an empty string."""
    anew: bool = False
    """Whether a retry must start from the beginning, because the files of the run cannot be used."""

    def to_json(self) -> str:
        """Return the content of the failure's file."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)


_FAILURE: TypeAdapter[Failure] = TypeAdapter(Failure)
_NAMES: TypeAdapter[frozenset[str]] = TypeAdapter(frozenset[str])


def read_failure(path: Path) -> Failure | None:
    """Read why a run failed; return none if the file does not exist."""
    try:
        return _FAILURE.validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValidationError:
        return Failure(path.stem, {}, f"{path} is damaged: the reason is unknown", anew=True)


def read_planned(root: Path) -> frozenset[str]:
    """Read the names of the runs of the grid that ran last; return an empty set if they are unknown."""
    try:
        return _NAMES.validate_json((root / PLANNED).read_bytes())
    except (OSError, ValidationError):
        return frozenset()
