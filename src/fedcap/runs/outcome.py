"""The outcome of a finished run, small enough for a repository, and the files of a grid's folder.

An outcome has no weights and no records of rounds. Tables, statistics and figures of many runs are made from
outcomes alone, without the runs and their data. Accuracies and rates are in percent, of the last round.

A grid's folder:

root/cells/<name>/          the directory of one run, with outcome.json once it has finished
root/failed/<name>.json     why a run failed; next to it, the files of a run that was damaged
root/planned.json           the places of all runs of the last grid that was started there, by name
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedcap.errors import InputError, validation_message
from fedcap.files import write_aside
from fedcap.runs.provenance import Provenance
from fedcap.runs.result import ClientResult, Result
from fedcap.runs.rounds import RoundRecord, finite
from fedcap.runs.run import Run
from fedcap.runs.settings import FREE_TO_CHANGE, Settings

CELLS, FAILED, OUTCOME, PLANNED = "cells", "failed", "outcome.json", "planned.json"
LARGEST = 20_000
"""The largest size of an outcome as JSON, in bytes."""
MOST_POINTS = 100
"""The largest number of rounds in a curve; of longer runs it has every second, every third, and so on."""

Place = Mapping[str, str]
"""The place of a run in a grid: axis → label."""
T = TypeVar("T")


@dataclass(frozen=True)
class CellFailure:
    """Why a run of a grid failed."""

    name: str
    place: Place
    why: str
    """One line."""
    where: str = ""
    """The traceback, if there is one."""
    anew: bool = False
    """Whether a retry must start from the first round: the files that the run left are damaged."""

    def to_json(self) -> str:
        """Return the content of its file."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)


_FAILURE: TypeAdapter[CellFailure] = TypeAdapter(CellFailure)


def read_failure(path: Path) -> CellFailure | None:
    """Read why a run failed; none if there is no such file."""
    try:
        return _FAILURE.validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValidationError:
        return CellFailure(path.stem, {}, f"{path} is damaged and does not say why", anew=True)


Planned = Mapping[str, Sequence[Place]]
"""The places of each run of a grid, by the run's name. A run at two places is played once."""
_PLANNED: TypeAdapter[dict[str, list[dict[str, str]]]] = TypeAdapter(dict[str, list[dict[str, str]]])
_NAMES: TypeAdapter[list[str]] = TypeAdapter(list[str])


def write_planned(root: Path, planned: Planned) -> None:
    """Write the places of all runs of a grid into its folder."""
    content = {name: [dict(place) for place in places] for name, places in planned.items()}
    write_aside(root / PLANNED, json.dumps(content, ensure_ascii=False))


def read_planned(root: Path) -> Planned:
    """Read the places of the runs of the last grid, by name; empty if there is no such file.

    Older versions wrote the names alone: then each run has no places.
    """
    try:
        content = (root / PLANNED).read_bytes()
    except OSError:
        return {}
    try:
        return _PLANNED.validate_json(content)
    except ValidationError:
        pass
    try:
        return {name: [] for name in _NAMES.validate_json(content)}
    except ValidationError:
        return {}


def read_outcome(path: Path) -> Outcome | None:
    """Read an outcome; none if there is no such file."""
    try:
        return Outcome.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise InputError(f"{path} is damaged: it is not text", code="damaged") from None
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", code="missing-file", field=str(path)
        ) from None
    except InputError as error:
        raise InputError(f"{path} is {error}", code="bad-file", field=str(path)) from None


@dataclass(frozen=True)
class Evidence:
    """On what and when a run was finished. Nothing of it enters a digest."""

    cpu: str
    """The model of the processor."""
    workers: int
    """The number of processes that trained clients."""
    date: str
    """The time at which the run finished, UTC, as in ISO 8601."""
    weights_hash: str
    """The SHA-256 of all final weights: the server's state and the clients' models."""

    @classmethod
    def now(cls, weights_hash: str, workers: int = 1) -> Self:
        """Return the evidence of a run that has just finished on this machine."""
        return cls(cpu_model(), workers, datetime.now(UTC).isoformat(timespec="seconds"), weights_hash)


def cpu_model() -> str:
    """Return the model of this machine's processor; its architecture if the system does not say more."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@dataclass(frozen=True)
class Peaks:
    """The largest value of a detector's score for each client, over the rounds before its removal."""

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
        """Return the better of the two readings after a number of rounds; none if it was not measured."""
        if rounds not in self.rounds:
            return None
        at = self.rounds.index(rounds)
        return max(self.shared[at] or 0.0, self.personal[at])


@dataclass(frozen=True)
class Norms:
    """The median length of honest and of malicious clients' updates, as the server measured them."""

    rounds: Sequence[int]
    benign: Sequence[float | None]
    malicious: Sequence[float | None]
    """None in rounds without a malicious client, or without a finite update of one."""

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
    """The final state of one client."""

    id: str
    malicious: bool
    shared: float | None
    personal: float | None
    removed: int | None
    """The round in which it was removed."""

    @classmethod
    def of(cls, client: ClientResult) -> ClientOutcome:
        """Return the main figures of a client in a result."""
        removed = None if client.removed is None else client.removed.round
        return cls(client.id, client.malicious, _rounded(client.shared), _rounded(client.personal), removed)


@dataclass(frozen=True)
class Outcome:
    """The figures of a finished run."""

    digest: str
    """`Experiment.digest()` of the run."""
    settings: Mapping[str, Any]
    """All settings, resolved, without those on which no result depends; of a path, the last part."""
    provenance: Mapping[str, Any]
    """Versions, commit, matrix products, hashes of data and partition, seed."""
    tacc: float
    tacc_shared: float | None
    tacc_personal: float
    tacc_worst_client: float
    tacc_p10: float
    """The 10th percentile over the honest clients' accuracies, in the better reading."""
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
    """By score; empty without detection, or if the outcome would be too large."""
    clients: Sequence[ClientOutcome] = field(default_factory=list)
    """Empty if the outcome would be too large."""
    evidence: Evidence | None = None
    """None in outcomes of older versions."""
    places: Sequence[Place] = field(default_factory=list)
    """Where the run stands in its grid; empty outside a grid's folder, and in outcomes of older versions."""

    @classmethod
    def of(cls, run: Run) -> Outcome:
        """Return the outcome of a finished run."""
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
        for name in ("evidence", "places"):
            if not content[name]:
                del content[name]
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
"""The figures that an outcome copies from the run's result."""
_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)


def settings_key(settings: Mapping[str, Any]) -> str:
    """Return a hash of resolved settings; the order of keys does not matter.

    Equal keys mean the same planned run. The data is not needed. Of user data, only the name of the file
    enters the key, not its folder.
    """
    known = Settings.model_validate({"checkpoint_every": 1, **settings})  # it is not in the hash
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
    """Return the honest clients' accuracies in the last round, in the better reading."""
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
        "products",
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
