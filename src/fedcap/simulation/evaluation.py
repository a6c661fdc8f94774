"""What is measured of a round: seconds by part, accuracy, and the answers class by class."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from fedcap.runs import Accuracy, ClassCounts, ClassCountsRecord, ClientAccuracy, Seconds, finite
from fedcap.training import AnswerCounts, TaskResult


class Stopwatch:
    """Adds up seconds by part of the round."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._parts: dict[str, float] = {}

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Add the seconds that the block takes to one part."""
        began = time.perf_counter()
        yield
        self.add(part, time.perf_counter() - began)

    def add(self, part: str, seconds: float) -> None:
        """Add seconds to one part."""
        self._parts[part] = self._parts.get(part, 0.0) + seconds

    def seconds(self) -> Seconds:
        """Return the parts, and the total since the start."""
        return Seconds(**self._parts, total=time.perf_counter() - self._began)


def measure_accuracy(results: Mapping[str, TaskResult], sizes: Mapping[str, int], shares: bool) -> Accuracy:
    """Return accuracies in percent, given the number of test samples of each client.

    A client that lacks one of the two models counts with the other. `shares` is whether the method sends
    models at all.
    """
    shared, personal = {}, {}
    for client, result in results.items():
        counts = (result.received_correct, result.personal_correct)
        shared[client], personal[client] = (
            next((count for count in order if count is not None), 0) for order in (counts, counts[::-1])
        )
    total = sum(sizes[client] for client in results)
    return Accuracy(
        100 * sum(shared.values()) / total if shares else None,
        100 * sum(personal.values()) / total,
        {
            client: ClientAccuracy(
                100 * shared[client] / sizes[client] if shares else None,
                100 * personal[client] / sizes[client],
            )
            for client in shared
        },
    )


def count_classes(
    results: Mapping[str, TaskResult], classes: Sequence[str], shares: bool
) -> ClassCountsRecord:
    """Add up the clients' counts; a client that lacks one of the two models counts with the other."""
    shared = [result.received_classes or result.personal_classes for result in results.values()]
    personal = [result.personal_classes or result.received_classes for result in results.values()]
    return ClassCountsRecord(
        list(classes), _sum(shared, len(classes)) if shares else None, _sum(personal, len(classes))
    )


def _sum(found: Sequence[AnswerCounts | None], classes: int) -> ClassCounts:
    counts = [each for each in found if each is not None]
    none = (0,) * classes
    return ClassCounts(
        [sum(column) for column in zip(none, *(each.actual for each in counts), strict=True)],
        [sum(column) for column in zip(none, *(each.predicted for each in counts), strict=True)],
        [sum(column) for column in zip(none, *(each.correct for each in counts), strict=True)],
        finite(sum((each.loss for each in counts), 0.0)),
    )
