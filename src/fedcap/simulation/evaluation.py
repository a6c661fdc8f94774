"""What is measured of a round: seconds by part, accuracy, and the answers class by class."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from tempfile import SpooledTemporaryFile

import numpy as np

from fedcap.runs import (
    Accuracy,
    ClassCounts,
    ClassCountsRecord,
    ClientAccuracy,
    ClientMeasures,
    Seconds,
    TestedClient,
    finite,
)
from fedcap.runs.result import balanced_accuracy, macro_f1
from fedcap.training import AnswerCounts, TaskResult
from fedcap.training.evaluation import area_under_curve


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


LARGEST_IN_MEMORY = 64 << 20
"""Probabilities of one reading with more bytes than this are in a temporary file."""
ROWS = 4096
"""The number of samples that are read at a time."""


class PooledAnswers:
    """The answers of all tested clients in one reading, for the area under the ROC curve over all samples.

    That area does not follow from the clients' own: it needs the probabilities of all samples. They are taken
    out of the results as these come in.
    """

    def __init__(self) -> None:
        self._labels: list[np.ndarray] = []
        self._file = SpooledTemporaryFile(max_size=LARGEST_IN_MEMORY)  # noqa: SIM115 - closed by `auc`
        self._is_finite = True
        self._classes = 0

    def add(self, counts: AnswerCounts) -> None:
        """Add one client's answers."""
        if counts.labels is None or counts.probabilities is None:
            self._is_finite = False
            return
        self._classes = counts.probabilities.shape[1]
        self._labels.append(counts.labels)
        self._file.write(np.ascontiguousarray(counts.probabilities).tobytes())

    def auc(self) -> float | None:
        """Return the area, and free the answers; None if one of them is not finite."""
        with self._file:
            if not self._is_finite or not self._labels:
                return None
            return area_under_curve(np.concatenate(self._labels), self._blocks(), self._classes)

    def _blocks(self) -> Iterator[np.ndarray]:
        """Yield the probabilities of all samples, a few classes at a time."""
        samples = sum(map(len, self._labels))
        width = max(1, LARGEST_IN_MEMORY // (4 * samples))
        for first in range(0, self._classes, width):
            block = np.empty((samples, min(width, self._classes - first)), np.float32)
            self._file.seek(0)
            for start in range(0, samples, ROWS):
                rows = np.frombuffer(self._file.read(4 * self._classes * ROWS), np.float32)
                block[start : start + ROWS] = rows.reshape(-1, self._classes)[:, first : first + width]
            yield block


class ClassCounter:
    """Adds up the answers of clients, class by class, as their results come in."""

    def __init__(self, classes: Sequence[str], shares: bool) -> None:
        self._classes, self._shares = classes, shares
        self._shared, self._personal = PooledAnswers(), PooledAnswers()

    def take(self, results: Mapping[str, TaskResult]) -> dict[str, TaskResult]:
        """Return the results without the probabilities of single samples, which are added here."""
        for result in results.values():
            shared, personal = _both(result)
            self._shared.add(shared)
            self._personal.add(personal)
        return {client: _without_probabilities(result) for client, result in results.items()}

    def record(self, results: Mapping[str, TaskResult]) -> ClassCountsRecord:
        """Return the sums over all clients, and the measures of each client."""
        both = {client: _both(result) for client, result in results.items()}
        shared, personal = ([pair[reading] for pair in both.values()] for reading in (0, 1))
        return ClassCountsRecord(
            list(self._classes),
            _sum(shared, self._shared.auc(), len(self._classes)) if self._shares else None,
            _sum(personal, self._personal.auc(), len(self._classes)),
            {
                client: TestedClient(
                    sum(personal.actual), _measures(shared) if self._shares else None, _measures(personal)
                )
                for client, (shared, personal) in both.items()
            },
        )


def _both(result: TaskResult) -> tuple[AnswerCounts, AnswerCounts]:
    """Return the counts with both models; a client that lacks one of them counts with the other."""
    shared = result.received_classes or result.personal_classes
    personal = result.personal_classes or result.received_classes
    assert shared is not None
    assert personal is not None
    return shared, personal


def _without_probabilities(result: TaskResult) -> TaskResult:
    shared, personal = (
        None if counts is None else replace(counts, labels=None, probabilities=None)
        for counts in (result.received_classes, result.personal_classes)
    )
    return replace(result, received_classes=shared, personal_classes=personal)


def _sum(counts: Sequence[AnswerCounts], auc: float | None, classes: int) -> ClassCounts:
    none = (0,) * classes
    return ClassCounts(
        [sum(column) for column in zip(none, *(each.actual for each in counts), strict=True)],
        [sum(column) for column in zip(none, *(each.predicted for each in counts), strict=True)],
        [sum(column) for column in zip(none, *(each.correct for each in counts), strict=True)],
        finite(sum((each.loss for each in counts), 0.0)),
        auc,
        _calibration_error(counts),
    )


def _measures(counts: AnswerCounts) -> ClientMeasures:
    """Return the measures of one client in one reading."""
    if counts.bins is None:
        return ClientMeasures(None, None, None, None)
    return ClientMeasures(
        macro_f1(counts.actual, counts.predicted, counts.correct),
        balanced_accuracy(counts.actual, counts.correct),
        counts.auc,
        _calibration_error([counts]),
    )


def _calibration_error(counts: Sequence[AnswerCounts]) -> float | None:
    """Return Σ_b |correct_b − confidence_b| / n in percent, with the sums of interval b of confidence.

    That is the expected calibration error, Σ_b n_b / n · |accuracy_b − mean confidence_b|.
    """
    found = [each.bins for each in counts if each.bins is not None]
    if len(found) < len(counts) or not found:
        return None
    samples, confidence, correct = np.array(found).sum(axis=0).T
    return float(100 * np.abs(correct - confidence).sum() / samples.sum())
