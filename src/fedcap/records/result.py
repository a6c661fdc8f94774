"""The result of a run: a pure function of its records, of its clients and of who was malicious.

So a run that was interrupted and resumed, or that is read back from its files, gives the same result as one
that was not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from fedcap.errors import InputError
from fedcap.records.mass_removal import nobody_left
from fedcap.records.metrics import Metrics, metrics_of
from fedcap.records.prose import describe_result
from fedcap.records.rounds import RoundRecord, finite

if TYPE_CHECKING:
    from torch import nn

GOAL = 80.0
"""The accuracy, in percent, that the paper's R2Acc counts the rounds to."""


@dataclass(frozen=True)
class Removal:
    """When and why a client was removed."""

    round: int
    reason: str
    """A sentence."""
    score: str
    value: float | None
    """None if it was not finite."""
    limit: float | None


@dataclass(frozen=True)
class ClientResult:
    """What became of one client."""

    id: str
    malicious: bool
    shared: float | None
    personal: float | None
    """Test accuracies of the last round, in percent; malicious clients have none."""
    removed: Removal | None


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run. Accuracies and rates are in percent."""

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
    removed: Mapping[str, Removal]
    clients: Sequence[ClientResult]
    history: Sequence[RoundRecord]
    metrics: Metrics | None = None
    """Loss, macro-F1 and accuracy by class in the last round; none if that round did not count them."""
    stopped: str | None = None
    """Why the run ended before its last round, or with nobody left: all clients were removed; else null."""
    models: Any = field(default=None, compare=False)
    """Where the clients' models are: something that has `model(client, reading)`. It is not in the JSON."""

    def __repr__(self) -> str:
        return describe_result(self)

    def model(self, client: str | int, reading: str = "personal") -> nn.Module:
        """Return a client's model in evaluation mode: its personal one, the shared, or the global."""
        if self.models is None:
            raise InputError("this result was read without its models: use fedcap.read(path).model(client)")
        return self.models.model(client, reading)  # type: ignore[no-any-return]

    def to_json(self) -> str:
        """Return the result, without the rounds' history, as indented JSON."""
        content = asdict(replace(self, history=(), models=None))
        del content["history"], content["models"]
        return json.dumps(finite(content), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, history: Sequence[RoundRecord]) -> Result:
        """Read a result back, with its rounds' records."""
        return _RESULT.validate_python(json.loads(text) | {"history": history, "models": None})


_RESULT: TypeAdapter[Result] = TypeAdapter(Result)


def removals(history: Sequence[RoundRecord]) -> dict[str, Removal]:
    """Return who was removed, when and why."""
    return {
        client: Removal(record.round, reason.sentence, reason.score, reason.value, reason.limit)
        for record in history
        for client, reason in record.removed.items()
    }


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def summarise(
    history: Sequence[RoundRecord], clients: Sequence[str], malicious: Collection[str], detects: bool
) -> Result:
    """Return the result of a run, given its records, its clients, who was malicious and if it detects."""
    accuracy = history[-1].accuracy if history else None
    if accuracy is None:
        raise ValueError("the last round was not evaluated")
    attackers, removed = frozenset(malicious), removals(history)
    caught = removed.keys() & attackers
    wrongly = removed.keys() - attackers
    missed = attackers - removed.keys()
    count = len(clients)
    return Result(
        tacc=accuracy.best,
        tacc_shared=accuracy.shared,
        tacc_personal=accuracy.personal,
        tacc_worst_client=accuracy.worst_client,
        dacc=_percent(count - len(wrongly) - len(missed), count) if detects and attackers else None,
        fpr=_percent(len(wrongly), count - len(attackers)) if detects else None,
        fnr=_percent(len(missed), len(attackers)) if detects else None,
        rounds_to_removal=sum(removed[client].round for client in caught) / len(caught) if caught else None,
        rounds_to_80=next((r.round for r in history if r.accuracy and r.accuracy.best >= GOAL), None),
        rounds=len(history),
        diverged=has_diverged(history),
        seconds=math.fsum(record.seconds.total for record in history),
        seconds_server=math.fsum(record.seconds.server for record in history),
        bytes_per_round=sum(record.bytes for record in history) / len(history),
        removed=removed,
        clients=client_results(history, clients, attackers),
        history=history,
        metrics=None if history[-1].tallies is None else metrics_of(history[-1].tallies),
        stopped=nobody_left(history, clients),
    )


def client_results(
    history: Sequence[RoundRecord], clients: Sequence[str], malicious: Collection[str]
) -> list[ClientResult]:
    """Return what became of each client, by the last round that was evaluated."""
    accuracy = next((record.accuracy for record in reversed(history) if record.accuracy is not None), None)
    tested = {} if accuracy is None else accuracy.clients
    removed = removals(history)
    return [
        ClientResult(
            client,
            client in malicious,
            tested[client].shared if client in tested else None,
            tested[client].personal if client in tested else None,
            removed.get(client),
        )
        for client in clients
    ]


def has_diverged(history: Sequence[RoundRecord]) -> bool:
    """Whether any benign client diverged in the last round, or diverged in any round and was removed."""
    removed = removals(history).keys()
    last = history[-1:]
    return any(record.diverged for record in last) or any(removed & set(r.diverged) for r in history)
