"""The record of a round: who took part, how accurate the clients are, what the server saw and did.

Clients are named by strings. Accuracies are in percent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Literal
from pydantic import TypeAdapter

Reading = Literal["shared", "personal"]


@dataclass(frozen=True)
class ClientAccuracy:
    """One benign client's test accuracy in percent, with the model it receives and with its own."""

    shared: float | None
    personal: float


@dataclass(frozen=True)
class Accuracy:
    """Test accuracy over all benign clients' samples, in percent."""

    shared: float | None
    """With the model each client receives, before it trains; none if nothing is shared."""
    personal: float
    """With the model each client has after training."""
    clients: Mapping[str, ClientAccuracy]

    @property
    def reading(self) -> Reading:
        """Which of the two is better."""
        return "personal" if self.shared is None or self.personal >= self.shared else "shared"

    @property
    def best(self) -> float:
        """The better of the two: the headline figure."""
        return self.personal if self.shared is None else max(self.shared, self.personal)

    @property
    def worst_client(self) -> float:
        """The accuracy of the worst-off benign client, in the better reading."""
        shared = self.reading == "shared"
        return min((c.shared or 0.0) if shared else c.personal for c in self.clients.values())


@dataclass(frozen=True)
class Tally:
    """How all benign clients' test samples were answered in one reading; a number per class each."""

    actual: Sequence[int]
    """How many samples are of the class."""
    predicted: Sequence[int]
    """How many were taken for it."""
    correct: Sequence[int]
    """How many were rightly taken for it."""
    loss: float | None
    """The cross-entropy, summed over all samples; none if it was not finite."""


@dataclass(frozen=True)
class Tallies:
    """How the test samples were answered, class by class, in either reading."""

    classes: Sequence[str]
    """The classes' names, in the order of the numbers."""
    shared: Tally | None
    personal: Tally


@dataclass(frozen=True)
class Realised:
    """The malicious rows as they were sent, measured against the mean of the benign ones."""

    length: float | None
    """Mean length of the malicious rows."""
    benign_length: float | None
    """Length of the benign mean."""
    cosine: float | None
    """Mean cosine between the two."""


@dataclass(frozen=True)
class Seconds:
    """Wall-clock seconds of a round, by part."""

    train: float = 0.0
    evaluate: float = 0.0
    attack: float = 0.0
    server: float = 0.0
    total: float = 0.0


@dataclass(frozen=True)
class Reason:
    """Why a client was removed or suspected: which score was over which limit, and the same in a sentence."""

    score: str
    value: float | None
    """None if it was not finite."""
    limit: float | None
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class RoundRecord:
    """All that is known of one round; a line of rounds.jsonl."""

    round: int
    participants: Sequence[str]
    asked: Sequence[str]
    """Newcomers who were asked for a request, a first update, before they were sent a model."""
    accuracy: Accuracy | None
    """None in rounds without evaluation."""
    scores: Mapping[str, Mapping[str, float | None]]
    """By score, such as "norm", the value of each client; null if it is not finite."""
    limits: Mapping[str, float | None]
    """By score, the limit of this round."""
    weights_entropy: float | None
    """Mean entropy, in nats, of the weights from which the models were mixed."""
    refused: Mapping[str, str]
    bounded: Mapping[str, str]
    removed: Mapping[str, Reason]
    attack: Realised | None
    diverged: Sequence[str]
    """Benign clients who could not train: what they sent or kept was not finite."""
    bytes: int
    """Sent to and by the clients."""
    seconds: Seconds
    notes: Sequence[str] = field(default_factory=list)
    """Where the server had to depart from the settings: a smaller M, another rule."""
    tallies: Tallies | None = None
    """How the test samples were answered; none but in the last round."""
    suspected: Mapping[str, Reason] = field(default_factory=dict)
    """Who is accused and not removed, and why: what they sent did not count in this round."""
    samples: Mapping[str, int] = field(default_factory=dict)
    """The number of training samples that each participant reported; empty in runs of older versions."""

    @property
    def norms(self) -> Mapping[str, float | None]:
        """Length of each client's update as the server measured it; empty if it did not."""
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
    """Return the detectors' reasons by client, as they are written down."""
    return {client: Reason(**finite(asdict(reason))) for client, reason in reasons.items()}


def finite(value: Any) -> Any:
    """Return a structure with every number that JSON cannot hold replaced by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
