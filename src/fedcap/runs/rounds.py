"""The record of a round, `RoundRecord`: participants, accuracies, scores, rejected and removed clients.

A record is one line of rounds.jsonl. Clients are identified by their names. Accuracies are in percent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from fedcap.server.server import RoundOutcome

Reading = Literal["shared", "personal"]
"""Which model is evaluated: the model that a client receives, or its model after training."""


@dataclass(frozen=True)
class ClientAccuracy:
    """The test accuracy of one honest client, in percent, with the model it receives and with its own."""

    shared: float | None
    personal: float


@dataclass(frozen=True)
class Accuracy:
    """Test accuracy over the samples of all honest clients, in percent."""

    shared: float | None
    """With the model that each client receives, before training; none if no model is shared."""
    personal: float
    """With the model of each client after training."""
    clients: Mapping[str, ClientAccuracy]

    @property
    def reading(self) -> Reading:
        """The reading with the higher accuracy."""
        return "personal" if self.shared is None or self.personal >= self.shared else "shared"

    @property
    def best(self) -> float:
        """The higher of the two accuracies."""
        return self.personal if self.shared is None else max(self.shared, self.personal)

    @property
    def worst_client(self) -> float:
        """The lowest accuracy of an honest client, in the better reading."""
        shared = self.reading == "shared"
        return min((c.shared or 0.0) if shared else c.personal for c in self.clients.values())


@dataclass(frozen=True)
class ClassCounts:
    """Counts over the test samples of all honest clients in one reading, with one entry per class."""

    actual: Sequence[int]
    """The number of samples of the class."""
    predicted: Sequence[int]
    """The number of samples that were predicted to be of the class."""
    correct: Sequence[int]
    """The number of samples of the class that were predicted correctly."""
    loss: float | None
    """The sum of the cross-entropy over all samples; none if it was not finite."""
    auc: float | None = None
    """The area under the ROC curve over all samples, in percent: the mean of one versus rest over the
    classes; none if the samples are of one class, or if an answer is not finite."""
    calibration_error: float | None = None
    """The expected calibration error over all samples, in percent; none if an answer is not finite."""


@dataclass(frozen=True)
class ClientMeasures:
    """The measures of one reading on the test samples of one client, in percent."""

    macro_f1: float | None
    balanced_accuracy: float | None
    auc: float | None
    calibration_error: float | None


@dataclass(frozen=True)
class TestedClient:
    """The test of one honest client: the number of its test samples, and the measures of both readings."""

    samples: int
    shared: ClientMeasures | None
    personal: ClientMeasures


@dataclass(frozen=True)
class ClassCountsRecord:
    """The class counts of both readings."""

    classes: Sequence[str]
    """The names of the classes, in the order of the counts."""
    shared: ClassCounts | None
    personal: ClassCounts
    clients: Mapping[str, TestedClient] = field(default_factory=dict)
    """The clients that were tested; empty in records of older versions."""


@dataclass(frozen=True)
class AttackStats:
    """The malicious updates as sent, compared with the mean of the honest updates."""

    length: float | None
    """The mean length of the malicious updates."""
    benign_length: float | None
    """The length of the mean of the honest updates."""
    cosine: float | None
    """The mean cosine between the malicious updates and the mean of the honest ones."""


@dataclass(frozen=True)
class Seconds:
    """The wall-clock seconds of a round, by part."""

    train: float = 0.0
    evaluate: float = 0.0
    attack: float = 0.0
    server: float = 0.0
    total: float = 0.0


@dataclass(frozen=True)
class Reason:
    """Why a client was removed or suspected: the score that exceeded its limit, and a sentence about it."""

    score: str
    value: float | None
    """None if it was not finite."""
    limit: float | None
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class RoundRecord:
    """The record of one round: a line of rounds.jsonl."""

    round: int
    participants: Sequence[str]
    asked: Sequence[str]
    """New clients that sent a request, a first update, before the server sent them a model."""
    accuracy: Accuracy | None
    """None in rounds without evaluation."""
    scores: Mapping[str, Mapping[str, float | None]]
    """By score, such as "norm", the value of each client; none if it is not finite."""
    limits: Mapping[str, float | None]
    """By score, the limit in this round."""
    weights_entropy: float | None
    """The mean entropy, in nats, of the weights with which the models were mixed."""
    refused: Mapping[str, str]
    """The clients whose update was rejected, with the reason."""
    bounded: Mapping[str, str]
    """The clients whose claimed sample count was limited, and how."""
    removed: Mapping[str, Reason]
    attack: AttackStats | None
    diverged: Sequence[str]
    """Honest clients whose training failed: their update or their state was not finite."""
    bytes: int
    """The bytes sent to the clients and by them."""
    seconds: Seconds
    notes: Sequence[str] = field(default_factory=list)
    """Deviations from the settings that the server had to make, such as a smaller M or another rule."""
    tallies: ClassCountsRecord | None = None
    """The class counts of the test samples, in the last round only."""
    suspected: Mapping[str, Reason] = field(default_factory=dict)
    """The clients that were accused but not removed, with the reason. Their update did not count."""
    samples: Mapping[str, int] = field(default_factory=dict)
    """The number of training samples that each participant claimed; empty in runs of older versions."""

    @property
    def norms(self) -> Mapping[str, float | None]:
        """The length of each client's update as the server measured it; empty if it did not."""
        return self.scores.get("norm", {})

    def to_json(self) -> str:
        """Return the record as one line."""
        return json.dumps(finite(asdict(self)), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> RoundRecord:
        """Read a record back."""
        return _ROUND.validate_json(line)


_ROUND: TypeAdapter[RoundRecord] = TypeAdapter(RoundRecord)


def recorded(reasons: Mapping[str, Any]) -> dict[str, Reason]:
    """Return the detectors' reasons, by client, in the form of a record."""
    return {client: Reason(**finite(asdict(reason))) for client, reason in reasons.items()}


def outcome_fields(outcome: RoundOutcome) -> dict[str, Any]:
    """Return the fields of a round's record that come from the server."""
    return {
        "scores": finite(dict(outcome.scores)),
        "limits": finite(dict(outcome.limits)),
        "refused": dict(outcome.rejected),
        "bounded": dict(outcome.capped),
        "samples": dict(outcome.samples),
        "removed": recorded(outcome.removed),
        "suspected": recorded(outcome.suspected),
        "notes": [*outcome.notes, *(f"{client}: {why}" for client, why in outcome.ignored)],
    }


def finite(value: Any) -> Any:
    """Return a structure in which None replaces every number that is not finite: JSON has no such numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
