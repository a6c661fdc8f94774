"""What sites tell of their accuracy, as a record has it. It is their own word: nothing depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from fedcap.federation.messages import Answer
from fedcap.methods.intake import MEDIANS_BELIEVED
from fedcap.records import Accuracy, ClientAccuracy


def told_accuracy(answers: Mapping[str, Answer], shares: bool) -> Accuracy | None:
    """Return the accuracy over the sites that told theirs, weighted by their test samples; none without any.

    A site that tells no counts that can be is left out. Nobody's weight is more than ten medians.
    """
    counted = {client: answer for client, answer in answers.items() if _makes_sense(answer, shares)}
    if not counted:
        return None
    most = MEDIANS_BELIEVED * median(answer.tested for answer in counted.values())
    weights = {client: min(answer.tested, most) for client, answer in counted.items()}
    clients = {client: _accuracy(answer, shares) for client, answer in counted.items()}
    total = sum(weights.values())
    personal = sum(weights[client] * found.personal for client, found in clients.items()) / total
    shared = sum(weights[client] * (found.shared or 0.0) for client, found in clients.items()) / total
    return Accuracy(shared if shares else None, personal, clients)


def _makes_sense(answer: Answer, shares: bool) -> bool:
    counts = [answer.personal_correct, *([answer.shared_correct] if shares else [])]
    return answer.tested > 0 and all(count is not None and 0 <= count <= answer.tested for count in counts)


def _accuracy(answer: Answer, shares: bool) -> ClientAccuracy:
    shared, personal = answer.shared_correct or 0, answer.personal_correct or 0
    return ClientAccuracy(100 * shared / answer.tested if shares else None, 100 * personal / answer.tested)
