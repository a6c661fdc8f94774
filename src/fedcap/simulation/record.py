"""What is written down: a record per round, and the result that follows from all of them.

A result is a pure function of the records and of who was malicious, so a run that was interrupted, or
one whose files are all that is left, gives the same result as one that went through.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

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
    clients: Mapping[int, ClientAccuracy]

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
class Realised:
    """What an attack came to: the malicious rows against the mean of the benign ones."""

    length: float | None
    """Mean length of the malicious rows."""
    benign_length: float | None
    """Length of the benign mean."""
    cosine: float | None
    """Mean cosine between the two."""


@dataclass(frozen=True)
class Seconds:
    """What a round cost, in seconds on the clock, by part."""

    train: float = 0.0
    evaluate: float = 0.0
    attack: float = 0.0
    server: float = 0.0
    total: float = 0.0


@dataclass(frozen=True)
class RoundRecord:
    """All that is known of one round; a line of rounds.jsonl."""

    round: int
    participants: Sequence[int]
    asked: Sequence[int]
    """Those who were asked for a request before they were given a model."""
    accuracy: Accuracy | None
    """None in rounds without evaluation."""
    norms: Mapping[int, float | None]
    """Length of each client's update as the server judged it; null if it is not finite."""
    weights_entropy: float | None
    """Mean entropy, in nats, of the weights from which the models were mixed."""
    refused: Mapping[int, str]
    bounded: Mapping[int, str]
    removed: Mapping[int, str]
    attack: Realised | None
    diverged: Sequence[int]
    """Benign clients who could not train: what they sent or kept was not finite."""
    bytes: int
    """Sent to and by the clients."""
    seconds: Seconds
    notes: Sequence[str] = field(default_factory=list)
    """What the server had to do otherwise than asked: a smaller M, another rule."""

    def to_json(self) -> str:
        """Return the record as one line."""
        return json.dumps(finite(asdict(self)), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> RoundRecord:
        """Read a record back."""
        return _ROUND.validate_json(line)


_ROUND: TypeAdapter[RoundRecord] = TypeAdapter(RoundRecord)


def finite(value: Any) -> Any:
    """Return a structure with every number that JSON cannot hold replaced by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


@dataclass(frozen=True)
class Removal:
    """When and why a client was removed."""

    round: int
    reason: str


@dataclass(frozen=True)
class ClientResult:
    """What became of one client."""

    id: int
    malicious: bool
    shared: float | None
    personal: float | None
    """Test accuracies of the last round, in percent; malicious clients have none."""
    removed: Removal | None


@dataclass(frozen=True)
class Result:
    """What a run came to. Accuracies and rates are in percent."""

    tacc: float
    """Test accuracy of the benign clients in the last round: the better of the two readings."""
    tacc_shared: float | None
    tacc_personal: float
    tacc_worst_client: float
    dacc: float | None
    """Share of clients rightly kept or rightly removed; null without attack or detection."""
    fpr: float | None
    """Share of benign clients removed; null without detection."""
    fnr: float | None
    """Share of malicious clients not removed; null without attack or detection."""
    rounds_to_removal: float | None
    """Mean round in which the removed attackers were removed."""
    rounds_to_80: int | None
    """First evaluated round that reached 80 percent: the paper's R2Acc."""
    rounds: int
    diverged: bool
    seconds: float
    seconds_server: float
    bytes_per_round: float
    removed: Mapping[int, Removal]
    clients: Sequence[ClientResult]
    history: Sequence[RoundRecord]

    def to_json(self) -> str:
        """Return the result, without the rounds' history, as indented JSON."""
        content = asdict(self)
        del content["history"]
        return json.dumps(finite(content), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, history: Sequence[RoundRecord]) -> Result:
        """Read a result back, with its rounds' records."""
        return _RESULT.validate_python(json.loads(text) | {"history": history})


_RESULT: TypeAdapter[Result] = TypeAdapter(Result)


def removals(history: Sequence[RoundRecord]) -> dict[int, Removal]:
    """Return who was removed, when and why."""
    return {
        client: Removal(record.round, reason)
        for record in history
        for client, reason in record.removed.items()
    }


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def summarise(
    history: Sequence[RoundRecord], clients: int, malicious: frozenset[int], detects: bool
) -> Result:
    """Return the result of a run, given its records, its size and who was malicious."""
    last = history[-1]
    accuracy = last.accuracy
    if accuracy is None:
        raise ValueError("the last round was not evaluated")
    removed = removals(history)
    caught = removed.keys() & malicious
    wrongly = removed.keys() - malicious
    missed = malicious - removed.keys()
    tested = accuracy.clients
    return Result(
        tacc=accuracy.best,
        tacc_shared=accuracy.shared,
        tacc_personal=accuracy.personal,
        tacc_worst_client=accuracy.worst_client,
        dacc=_percent(clients - len(wrongly) - len(missed), clients) if detects and malicious else None,
        fpr=_percent(len(wrongly), clients - len(malicious)) if detects else None,
        fnr=_percent(len(missed), len(malicious)) if detects else None,
        rounds_to_removal=sum(removed[client].round for client in caught) / len(caught) if caught else None,
        rounds_to_80=next((r.round for r in history if r.accuracy and r.accuracy.best >= 80), None),
        rounds=len(history),
        diverged=bool(last.diverged) or any(removed.keys() & set(r.diverged) for r in history),
        seconds=sum(record.seconds.total for record in history),
        seconds_server=sum(record.seconds.server for record in history),
        bytes_per_round=sum(record.bytes for record in history) / len(history),
        removed=removed,
        clients=[
            ClientResult(
                client,
                client in malicious,
                tested[client].shared if client in tested else None,
                tested[client].personal if client in tested else None,
                removed.get(client),
            )
            for client in range(clients)
        ],
        history=history,
    )
