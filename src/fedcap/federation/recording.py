"""The record of a federated round. Accuracies in it are the sites' own word: nothing depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from fedcap.federation.collecting import Collected
from fedcap.federation.messages import Answer
from fedcap.runs import Accuracy, ClientAccuracy, Mixing, RoundRecord, Seconds, finite, recorded
from fedcap.server.server import Closing, Opening, Serving
from fedcap.server.uploads import MEDIANS_BELIEVED


def record_of(
    opening: Opening,
    serving: Serving,
    asked: Collected,
    trained: Collected,
    closing: Closing,
    seconds: float,
    shares: bool,
) -> RoundRecord:
    """Return the record of a round that took so long; `shares` is whether the method shares anything."""
    out = {*closing.removed, *closing.refused}
    counted = {client: answer for client, answer in trained.answers.items() if client not in out}
    waited = asked.seconds + trained.seconds
    return RoundRecord(
        round=opening.round,
        participants=list(serving.clients),
        asked=list(opening.asked),
        accuracy=told_accuracy(counted, shares),
        scores=finite(dict(closing.scores)),
        limits=finite(dict(closing.limits)),
        weights_entropy=serving.mixing_entropy,
        refused={**closing.refused, **serving.offer.refused, **asked.failed, **trained.failed},
        bounded=dict(closing.bounded),
        samples=dict(closing.samples),
        removed=recorded(closing.removed),
        suspected=recorded(closing.suspected),
        attack=None,
        diverged=[],
        bytes=asked.bytes + trained.bytes,
        seconds=Seconds(train=waited, server=seconds - waited, total=seconds),
        notes=[*closing.notes, *(f"{client}: {why}" for client, why in closing.ignored)],
    )


def mixing_of(serving: Serving) -> Mixing | None:
    """Return who is mixed from whom in the models that go out in a round, if those are mixtures."""
    return Mixing.of(serving.round, serving.clients, serving.pool, serving.dispatch.mixing)


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
