"""How a model answers a client's test samples: how many rightly, and, if asked, class by class."""

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
class Counts:
    """How samples were answered; a number per class each, and the loss."""

    actual: tuple[int, ...]
    """How many samples are of the class."""
    predicted: tuple[int, ...]
    """How many were taken for it."""
    correct: tuple[int, ...]
    """How many were rightly taken for it."""
    loss: float
    """The cross-entropy, summed over all samples."""


@dataclass(frozen=True)
class Findings:
    """What the test of one model found; nothing, if there was no test."""

    correct: int | None = None
    counts: Counts | None = None

    @classmethod
    def on(cls, samples: Samples, answer: Answer, measure: bool) -> Findings:
        """Test a model, given how it answers; the counts are made only to `measure` it."""
        if not measure:
            hits = ((logits.argmax(dim=1) == y).sum() for logits, y in _answers(answer, samples))
            return cls(sum(map(int, hits)))
        counts = _count(answer, samples)
        return cls(sum(counts.correct), counts)


def _count(answer: Answer, samples: Samples) -> Counts:
    taken, classes, loss = [], 0, 0.0
    for logits, labels in _answers(answer, samples):
        taken.append(logits.argmax(dim=1))
        classes = logits.shape[1]
        loss += float(functional.cross_entropy(logits.double(), labels, reduction="sum"))
    y, found = samples.y, torch.cat(taken)
    actual, predicted, correct = (
        tuple(torch.bincount(labels, minlength=classes).tolist()) for labels in (y, found, y[found == y])
    )
    return Counts(actual, predicted, correct, loss)


def _answers(answer: Answer, samples: Samples) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the logits of the samples and their labels, batch by batch."""
    for start in range(0, len(samples), EVALUATION_BATCH):
        batch = slice(start, start + EVALUATION_BATCH)
        yield answer(samples.x[batch]), samples.y[batch]
