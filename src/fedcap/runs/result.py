"""The result of a run, computed from its records, its clients and the names of the malicious ones.

It is a pure function of them: a run that was interrupted and resumed, or read from its files, has the same
result as a run that was not. The last round also has loss, macro-F1, balanced accuracy, the area under the
ROC curve, the calibration error and the accuracy per class, over the pooled test samples of all honest
clients and of each client. Of these samples, a_c are of class c, p_c were predicted to be of class c, and
t_c of those correctly:

    accuracy_c = t_c / a_c,    F1_c = 2 t_c / (a_c + p_c)

Macro-F1 is the mean of F1_c over the classes that occur among the labels or the predictions, balanced
accuracy the mean of accuracy_c over the classes that occur among the labels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from fedcap.errors import InputError, plural
from fedcap.names import LONGEST_LIST
from fedcap.runs.findings import all_removed, still_rising
from fedcap.runs.rounds import ClassCounts, ClassCountsRecord, RoundRecord, TestedClient, finite

if TYPE_CHECKING:
    from torch import nn

_GOAL = 80.0
"""The accuracy, in percent, of the paper's R2Acc: the number of rounds until it is reached."""


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
    """The result of one client."""

    id: str
    malicious: bool
    shared: float | None
    personal: float | None
    """Test accuracies in the last evaluated round, in percent; none for malicious clients."""
    removed: Removal | None
    tested: TestedClient | None = None
    """The number of its test samples and its measures in the last round; none if these were not recorded."""


@dataclass(frozen=True)
class Measures:
    """The quality of the models of one reading, over the test samples of all honest clients."""

    loss: float | None
    """The mean cross-entropy; none if it was not finite."""
    macro_f1: float | None
    """The mean F1 of the classes, in percent."""
    per_class: Mapping[str, float | None]
    """The accuracy on the samples of each class, in percent; none for a class without samples."""
    balanced_accuracy: float | None = None
    """The mean accuracy of the classes, in percent."""
    auc: float | None = None
    """The area under the ROC curve, in percent: the mean of one versus rest over the classes."""
    calibration_error: float | None = None
    """The expected calibration error, in percent. Older versions did not record the last three."""


@dataclass(frozen=True)
class Metrics:
    """The measures of the last round, for both readings."""

    shared: Measures | None
    """None if no model is shared."""
    personal: Measures


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run. Accuracies and rates are in percent."""

    tacc: float
    """The test accuracy of the honest clients in the last round, in the better reading."""
    tacc_shared: float | None
    tacc_personal: float
    tacc_worst_client: float
    dacc: float | None
    """The share of clients that were correctly kept or removed; none without attack or detection."""
    fpr: float | None
    """The share of honest clients that were removed; none without detection."""
    fnr: float | None
    """The share of malicious clients that were not removed; none without attack or detection."""
    rounds_to_removal: float | None
    """The mean round of removal of the removed malicious clients."""
    rounds_to_80: int | None
    """The first evaluated round with at least 80 percent accuracy: the paper's R2Acc."""
    rounds: int
    diverged: bool
    seconds: float
    seconds_server: float
    bytes_per_round: float
    removed: Mapping[str, Removal]
    clients: Sequence[ClientResult]
    """All clients; of more than 20,000, only those that a record names."""
    history: Sequence[RoundRecord]
    metrics: Metrics | None = None
    """Loss, macro-F1 and accuracy per class in the last round; none if its record has no class counts."""
    stopped: str | None = None
    """Why the run stopped early, which happens if all clients are removed; else none."""
    unlisted: int = 0
    """The number of clients that `clients` does not list."""
    models: Any = field(default=None, compare=False)
    """An object with a method `model(client, reading)`. It is not in the JSON."""

    def __repr__(self) -> str:
        return _describe(self)

    def model(self, client: str | int, reading: str = "personal") -> nn.Module:
        """Return a model in evaluation mode: the client's personal one, the shared one, or the global one."""
        if self.models is None:
            raise InputError(
                "this result was read without its models: use fedcap.read(path).model(client)",
                code="no-model",
            )
        return self.models.model(client, reading)  # type: ignore[no-any-return]

    @property
    def noun(self) -> str:
        """The noun for the clients in `clients`."""
        return "recorded client" if self.unlisted else "client"

    def to_json(self) -> str:
        """Return the result as indented JSON, without the records of the rounds."""
        content = asdict(replace(self, history=(), models=None))
        del content["history"], content["models"]
        if not self.unlisted:  # as in files of older versions
            del content["unlisted"]
        if all(client.tested is None for client in self.clients):
            for client in content["clients"]:
                del client["tested"]
            for measures in filter(None, (content["metrics"] or {}).values()):
                for name in ("balanced_accuracy", "auc", "calibration_error"):
                    del measures[name]
        return json.dumps(finite(content), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, history: Sequence[RoundRecord]) -> Result:
        """Read a result back, given the records of its rounds."""
        found = _RESULT.validate_python(json.loads(text) | {"history": (), "models": None})
        return replace(found, history=history)


_RESULT: TypeAdapter[Result] = TypeAdapter(Result)


def summarise(
    history: Sequence[RoundRecord], clients: Sequence[str], malicious: Collection[str], detects: bool
) -> Result:
    """Return the result of a run; `detects` says whether the run looked for malicious clients."""
    accuracy = history[-1].accuracy if history else None
    if accuracy is None:
        raise InputError("the last round was not evaluated", code="not-evaluated")
    attackers, removed = frozenset(malicious), removals(history)
    caught = removed.keys() & attackers
    wrongly_removed = removed.keys() - attackers
    missed = attackers - removed.keys()
    count, listed = len(clients), client_results(history, clients, attackers)
    return Result(
        tacc=accuracy.best,
        tacc_shared=accuracy.shared,
        tacc_personal=accuracy.personal,
        tacc_worst_client=accuracy.worst_client,
        dacc=_percent(count - len(wrongly_removed) - len(missed), count) if detects and attackers else None,
        fpr=_percent(len(wrongly_removed), count - len(attackers)) if detects else None,
        fnr=_percent(len(missed), len(attackers)) if detects else None,
        rounds_to_removal=sum(removed[client].round for client in caught) / len(caught) if caught else None,
        rounds_to_80=next((r.round for r in history if r.accuracy and r.accuracy.best >= _GOAL), None),
        rounds=len(history),
        diverged=has_diverged(history),
        seconds=math.fsum(record.seconds.total for record in history),
        seconds_server=math.fsum(record.seconds.server for record in history),
        bytes_per_round=sum(record.bytes for record in history) / len(history),
        removed=removed,
        clients=listed,
        unlisted=count - len(listed),
        history=history,
        metrics=None if history[-1].tallies is None else metrics_of(history[-1].tallies),
        stopped=all_removed(history, clients),
    )


def client_results(
    history: Sequence[RoundRecord], clients: Sequence[str], malicious: Collection[str]
) -> list[ClientResult]:
    """Return the result of each client, with its accuracies in the last evaluated round."""
    malicious = frozenset(malicious)
    accuracy = next((record.accuracy for record in reversed(history) if record.accuracy is not None), None)
    tested = {} if accuracy is None else accuracy.clients
    tallies = history[-1].tallies if history else None
    measured = {} if tallies is None else tallies.clients
    removed = removals(history)
    return [
        ClientResult(
            client,
            client in malicious,
            tested[client].shared if client in tested else None,
            tested[client].personal if client in tested else None,
            removed.get(client),
            measured.get(client),
        )
        for client in recorded_clients(history, clients)
    ]


def recorded_clients(history: Sequence[RoundRecord], clients: Sequence[str]) -> Sequence[str]:
    """Return the clients that results and tables list: all, or of many those that a record names."""
    if len(clients) <= LONGEST_LIST:
        return clients
    found: set[str] = set()
    for record in history:
        found.update(record.participants, record.asked, record.refused, record.removed)
        found.update(record.accuracy.clients if record.accuracy is not None else ())
    return [client for client in clients if client in found]


def has_diverged(history: Sequence[RoundRecord]) -> bool:
    """Return whether an honest client diverged in the last round, or diverged in a round and was removed."""
    removed = removals(history).keys()
    last = history[-1:]
    return any(record.diverged for record in last) or any(removed & set(r.diverged) for r in history)


def removals(history: Sequence[RoundRecord]) -> dict[str, Removal]:
    """Return the removal of each removed client, by name."""
    return {
        client: Removal(record.round, reason.sentence, reason.score, reason.value, reason.limit)
        for record in history
        for client, reason in record.removed.items()
    }


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def metrics_of(counts: ClassCountsRecord) -> Metrics:
    """Return the measures that follow from the class counts."""
    shared = None if counts.shared is None else _measures(counts.shared, counts.classes)
    return Metrics(shared, _measures(counts.personal, counts.classes))


def _measures(counts: ClassCounts, classes: Sequence[str]) -> Measures:
    total, is_recorded = sum(counts.actual), counts.calibration_error is not None
    return Measures(
        loss=None if counts.loss is None or not total else finite(counts.loss / total),
        macro_f1=macro_f1(counts.actual, counts.predicted, counts.correct),
        per_class={
            name: 100 * correct / actual if actual else None
            for name, actual, correct in zip(classes, counts.actual, counts.correct, strict=True)
        },
        balanced_accuracy=balanced_accuracy(counts.actual, counts.correct) if is_recorded else None,
        auc=counts.auc,
        calibration_error=counts.calibration_error,
    )


def macro_f1(actual: Sequence[int], predicted: Sequence[int], correct: Sequence[int]) -> float | None:
    """Return the mean F1 of the classes, in percent, from counts by class; none without samples."""
    rows = zip(actual, predicted, correct, strict=True)
    f1 = [200 * right / (there + found) for there, found, right in rows if there + found]
    return sum(f1) / len(f1) if f1 else None


def balanced_accuracy(actual: Sequence[int], correct: Sequence[int]) -> float | None:
    """Return the mean accuracy of the classes, in percent, from counts by class; none without samples."""
    found = [100 * right / there for there, right in zip(actual, correct, strict=True) if there]
    return sum(found) / len(found) if found else None


DIVERGED = "honest clients' weights became NaN or infinite; accuracy means nothing"


def _describe(result: Result) -> str:
    """Return the result as text for a terminal or a notebook."""
    attackers = [client.id for client in result.clients if client.malicious]
    of_them = f", {len(attackers)} of them malicious" if attackers else ""
    heading = f"Result of {plural(result.rounds, 'round')} with {plural(len(result.clients), result.noun)}"
    lines = [heading + of_them]
    figures = (result.tacc, result.tacc_shared, result.tacc_personal, result.tacc_worst_client)
    lines.append(f"  accuracy   {accuracy_line(*figures)}")
    if result.diverged:
        lines.append(f"  diverged   {DIVERGED}")
    if rising := still_rising(result.history):
        lines.append(f"  rising     {rising}")
    if result.fpr is not None:
        lines.append(f"  detection  {removed_line(result.removed, attackers, 'honest client')}")
    return "\n".join(lines)


def accuracy_line(best: float, shared: float | None, personal: float, worst: float) -> str:
    """Return the four accuracies, in percent, as one line."""
    read = "none" if shared is None else f"{shared:.1f}"
    return f"{best:.1f} %  (shared {read}, personal {personal:.1f}; worst client {worst:.1f})"


def removed_line(removed: Collection[str], attackers: Collection[str], others: str) -> str:
    """Return the numbers of removed clients as one line; `others` is the noun for the other clients."""
    caught = sum(client in removed for client in attackers)
    wrongly = len(removed) - caught
    attackers_part = f"{caught} of {plural(len(attackers), 'attacker')} removed; " if attackers else ""
    return f"{attackers_part}{plural(wrongly, others) if wrongly else f'no {others}'} removed"
