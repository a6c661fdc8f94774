"""What a run's last round came to besides accuracy: loss, macro-F1, and accuracy class by class.

Of the benign clients' test samples, a_c are of class c, p_c were taken for it, t_c of these rightly:

    accuracy_c = t_c / a_c,    F1_c = 2 t_c / (a_c + p_c)

Macro-F1 is the mean of F1_c over the classes that occur, among the labels or among the answers.

Runs and results in a few lines of text, as a notebook or a terminal shows them.

The result of a run: a pure function of its records, of its clients and of who was malicious.

So a run that was interrupted and resumed, or that is read back from its files, gives the same result as one
that was not.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from fedcap.runs.rounds import Tallies
from fedcap.runs.rounds import Tally
from fedcap.runs.rounds import finite
from collections.abc import Collection
from typing import TYPE_CHECKING
from fedcap.errors import plural
import json
import math
from dataclasses import asdict
from dataclasses import field
from dataclasses import replace
from typing import Any
from pydantic import TypeAdapter
from fedcap.errors import InputError
from fedcap.runs.findings import nobody_left
from fedcap.runs.rounds import RoundRecord

if TYPE_CHECKING:
    from fedcap.runs.run import Run
    from torch import nn

@dataclass(frozen=True)
class Measures:
    """How well one reading's models answer, over all benign clients' test samples."""

    loss: float | None
    """The mean cross-entropy; none if it was not finite."""
    macro_f1: float | None
    """The mean F1 of the classes, in percent."""
    per_class: Mapping[str, float | None]
    """The accuracy on the samples of each class, in percent; none if there are none of it."""


@dataclass(frozen=True)
class Metrics:
    """The measures of the last round, with the models that clients receive and with their own."""

    shared: Measures | None
    """None if nothing is shared."""
    personal: Measures


def metrics_of(tallies: Tallies) -> Metrics:
    """Return the measures that counts come to."""
    shared = None if tallies.shared is None else _measures(tallies.shared, tallies.classes)
    return Metrics(shared, _measures(tallies.personal, tallies.classes))


def _measures(tally: Tally, classes: Sequence[str]) -> Measures:
    counts = list(zip(tally.actual, tally.predicted, tally.correct, strict=True))
    f1 = [200 * correct / (actual + predicted) for actual, predicted, correct in counts if actual + predicted]
    total = sum(tally.actual)
    return Measures(
        loss=None if tally.loss is None or not total else finite(tally.loss / total),
        macro_f1=sum(f1) / len(f1) if f1 else None,
        per_class={
            name: 100 * correct / actual if actual else None
            for name, (actual, _, correct) in zip(classes, counts, strict=True)
        },
    )


DIVERGED = "honest clients' weights became NaN or infinite; accuracy means nothing"


def describe_result(result: Result) -> str:
    """Return what a result says: rounds, clients, accuracy, who was removed."""
    attackers = [client.id for client in result.clients if client.malicious]
    of_them = f", {len(attackers)} of them malicious" if attackers else ""
    heading = f"Result of {plural(result.rounds, 'round')} with {plural(len(result.clients), 'client')}"
    lines = [heading + of_them]
    figures = (result.tacc, result.tacc_shared, result.tacc_personal, result.tacc_worst_client)
    lines.append(f"  accuracy   {accuracy_line(*figures)}")
    if result.diverged:
        lines.append(f"  diverged   {DIVERGED}")
    if result.fpr is not None:
        lines.append(f"  detection  {_removed(result.removed, attackers, 'honest client')}")
    return "\n".join(lines)


def describe_run(run: Run) -> str:
    """Return what a run was, how far it is, how accurate its clients are, and who was removed."""
    settings, attackers = run.settings, run.provenance.malicious
    clients = plural(len(run.provenance.clients), "client")
    attack = "federation" if settings.federated else "no attack"
    if attackers:
        attack = f"{settings.attack.name}, {len(attackers)} of {clients} malicious"
    played = plural(len(run.rounds), "round")
    if run.result is None:
        played = f"{len(run.rounds)} of {plural(settings.rounds, 'round')}, unfinished"
    parts = (settings.dataset_name, settings.method.name, attack, f"seed {settings.seed}", played)
    lines = [" · ".join(parts)]
    evaluated = run.evaluated
    if evaluated is None or evaluated.accuracy is None:
        lines.append("  accuracy   not measured yet")
    else:
        found = evaluated.accuracy
        when = "" if evaluated is run.rounds[-1] else f" in round {evaluated.round}"
        figures = (found.best, found.shared, found.personal, found.worst_client)
        lines.append(f"  accuracy   {accuracy_line(*figures)}{when}")
    if run.diverged:
        lines.append(f"  diverged   {DIVERGED}")
    if run.detects:
        lines.append(f"  detection  {_removed(run.removed, attackers, settings.benign)}")
    return "\n".join([*lines, f"  records    {run.path}"])


def accuracy_line(best: float, shared: float | None, personal: float, worst: float) -> str:
    """Return the four accuracies, in percent, as one line."""
    read = "none" if shared is None else f"{shared:.1f}"
    return f"{best:.1f} %  (shared {read}, personal {personal:.1f}; worst client {worst:.1f})"


def _removed(removed: Collection[str], attackers: Collection[str], others: str) -> str:
    caught = sum(client in removed for client in attackers)
    benign = len(removed) - caught
    found = f"{caught} of {plural(len(attackers), 'attacker')} removed; " if attackers else ""
    return f"{found}{f'no {others}' if not benign else plural(benign, others)} removed"


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
