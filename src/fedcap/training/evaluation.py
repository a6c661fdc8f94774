"""Test a model on a client's samples: the number of correct answers and, if asked, counts by class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedcap.state import Samples

EVALUATION_BATCH = 4096

Answer = Callable[[Tensor], Tensor]
"""A function from inputs, n×…, to logits, n×classes."""


@dataclass(frozen=True)
class AnswerCounts:
    """How samples were answered: one number per class each, and the loss."""

    actual: tuple[int, ...]
    """The number of samples of the class."""
    predicted: tuple[int, ...]
    """The number of samples that the model assigned to the class."""
    correct: tuple[int, ...]
    """The number of samples of the class that the model assigned to it."""
    loss: float
    """The cross-entropy, summed over all samples."""


def evaluate(samples: Samples, answer: Answer, count_classes: bool) -> tuple[int, AnswerCounts | None]:
    """Return the number of correct answers and, if asked, the counts by class."""
    if not count_classes:
        hits = ((logits.argmax(dim=1) == y).sum() for logits, y in _answers(answer, samples))
        return sum(map(int, hits)), None
    counts = _count(answer, samples)
    return sum(counts.correct), counts


def _count(answer: Answer, samples: Samples) -> AnswerCounts:
    found, classes, loss = [], 0, 0.0
    for logits, labels in _answers(answer, samples):
        found.append(logits.argmax(dim=1))
        classes = logits.shape[1]
        loss += float(functional.cross_entropy(logits.double(), labels, reduction="sum"))
    y, predicted = samples.y, torch.cat(found)
    counted = (torch.bincount(labels, minlength=classes) for labels in (y, predicted, y[predicted == y]))
    actual, taken, correct = (tuple(counts.tolist()) for counts in counted)
    return AnswerCounts(actual, taken, correct, loss)


def _answers(answer: Answer, samples: Samples) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the logits of the samples and their labels, batch by batch."""
    for start in range(0, len(samples), EVALUATION_BATCH):
        batch = slice(start, start + EVALUATION_BATCH)
        yield answer(samples.x[batch]), samples.y[batch]
