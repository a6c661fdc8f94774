"""The record of a federated round. Accuracies in it are the sites' own word: nothing depends on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from fedcap.federation.collecting import Collected
from fedcap.federation.messages import Answer
from fedcap.runs import Accuracy, ClientAccuracy, Mixing, RoundRecord, Seconds, outcome_fields
from fedcap.server.server import RoundOutcome
from fedcap.server.uploads import MEDIANS_BELIEVED


def record_of(
    clients: Sequence[str],
    pending: Sequence[str],
    entropy: float | None,
    asked: Collected,
    trained: Collected,
    outcome: RoundOutcome,
    seconds: float,
    shares: bool,
) -> RoundRecord:
    """Return the record of a round; `shares` is whether the method exchanges models at all."""
    fields = outcome_fields(outcome)
    out = {*outcome.removed, *outcome.rejected}
    counted = {client: answer for client, answer in trained.answers.items() if client not in out}
    waited = asked.seconds + trained.seconds
    return RoundRecord(
        round=outcome.round,
        participants=list(clients),
        asked=list(pending),
        accuracy=told_accuracy(counted, shares),
        weights_entropy=entropy,
        attack=None,
        diverged=[],
        bytes=asked.bytes + trained.bytes,
        seconds=Seconds(train=waited, server=seconds - waited, total=seconds),
        **{**fields, "refused": {**fields["refused"], **asked.failed, **trained.failed}},
    )


def mean_shares(mixing: Mixing | None) -> dict[str, float] | None:
    """Return each client's mean share in the models that go out in a round, if those are mixtures."""
    if mixing is None:
        return None
    shares = mixing.weights.mean(axis=0).tolist()
    return {client: round(share, 4) for client, share in zip(mixing.contributors, shares, strict=True)}


def told_accuracy(answers: Mapping[str, Answer], shares: bool) -> Accuracy | None:
    """Return the accuracy over the sites that told theirs, weighted by their test samples; none without any.

    A site that tells no counts that can be is left out. Nobody's weight is more than ten medians.
    """
    counted = {client: answer for client, answer in answers.items() if _makes_sense(answer, shares)}
    if not counted:
        return None
    most = MEDIANS_BELIEVED * median(answer.tested for answer in counted.values())
    shared = personal = total = 0.0
    for answer in counted.values():
        believed = min(1.0, most / answer.tested)
        shared += believed * (answer.shared_correct or 0)
        personal += believed * (answer.personal_correct or 0)
        total += believed * answer.tested
    clients = {
        client: ClientAccuracy(
            100 * (answer.shared_correct or 0) / answer.tested if shares else None,
            100 * (answer.personal_correct or 0) / answer.tested,
        )
        for client, answer in counted.items()
    }
    return Accuracy(100 * shared / total if shares else None, 100 * personal / total, clients)


def _makes_sense(answer: Answer, shares: bool) -> bool:
    counts = [answer.personal_correct, *([answer.shared_correct] if shares else [])]
    return answer.tested > 0 and all(count is not None and 0 <= count <= answer.tested for count in counts)
