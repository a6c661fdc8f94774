"""Test a model on a client's samples: the number of correct answers and, if asked, counts by class.

With the counts come the area under the ROC curve, and what is needed to pool the clients' answers. The area
of a class is the probability that a sample of the class gets a higher probability of it than another sample,
where equal ones count half. With ranks r_i of the n probabilities (equal ones have their mean rank), of which
n⁺ are of samples of the class and n⁻ = n − n⁺ are not,

    AUC_c = (Σ_{i of class c} r_i − n⁺ (n⁺ + 1) / 2) / (n⁺ n⁻),    AUC = the mean of AUC_c over the classes

with samples of the class and others (one versus rest). With two classes, it is that of the second class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedcap.state import Samples

EVALUATION_BATCH = 4096
CALIBRATION_BINS = 15
"""The number of intervals of equal width in which confidence is compared with accuracy (Guo et al., 2017)."""

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
    bins: tuple[tuple[float, float, float], ...] | None = None
    """By interval of confidence: samples, their summed confidence, and the correct ones; None with NaN."""
    auc: float | None = None
    """The area under the ROC curve over these samples, in percent; None for one class only, or with NaN."""
    labels: np.ndarray | None = field(default=None, compare=False, repr=False)
    """n: the class of each sample."""
    probabilities: np.ndarray | None = field(default=None, compare=False, repr=False)
    """n×classes: the probability of each class, float32; None with NaN."""


def evaluate(samples: Samples, answer: Answer, count_classes: bool) -> tuple[int, AnswerCounts | None]:
    """Return the number of correct answers and, if asked, the counts by class."""
    if not count_classes:
        hits = ((logits.argmax(dim=1) == y).sum() for logits, y in _answers(answer, samples))
        return sum(map(int, hits)), None
    counts = _count(answer, samples)
    return sum(counts.correct), counts


def _count(answer: Answer, samples: Samples) -> AnswerCounts:
    found, parts, classes, loss = [], [], 0, 0.0
    for logits, labels in _answers(answer, samples):
        found.append(logits.argmax(dim=1))
        classes = logits.shape[1]
        loss += float(functional.cross_entropy(logits.double(), labels, reduction="sum"))
        parts.append(torch.softmax(logits.double(), dim=1).float())
    y, predicted, probabilities = samples.y, torch.cat(found), torch.cat(parts)
    counted = (torch.bincount(labels, minlength=classes) for labels in (y, predicted, y[predicted == y]))
    actual, taken, correct = (tuple(counts.tolist()) for counts in counted)
    if not bool(probabilities.isfinite().all()):
        return AnswerCounts(actual, taken, correct, loss)
    bins = _bins(probabilities.amax(dim=1).double(), predicted == y)
    truth, each = y.cpu().numpy(), probabilities.cpu().numpy()
    return AnswerCounts(actual, taken, correct, loss, bins, area_under_curve(truth, [each]), truth, each)


def _bins(confidence: Tensor, correct: Tensor) -> tuple[tuple[float, float, float], ...]:
    """Return, for each interval (b/B, (b+1)/B] of confidence, samples, summed confidence and correct ones."""
    edges = torch.linspace(0, 1, CALIBRATION_BINS + 1, dtype=torch.double, device=confidence.device)[1:-1]
    place = torch.bucketize(confidence, edges)
    sums = [
        torch.bincount(place, weights=weight, minlength=CALIBRATION_BINS).tolist()
        for weight in (torch.ones_like(confidence), confidence, correct.double())
    ]
    return tuple(zip(*sums, strict=True))


def area_under_curve(labels: np.ndarray, blocks: Iterable[np.ndarray], classes: int = 0) -> float | None:
    """Return the area under the ROC curve, in percent; None if all samples are of one class.

    `blocks` are the probabilities, n×c each, of c classes each, in order; `classes` is the number of all of
    them, by default that of the one block.
    """
    areas, label = [], 0
    for block in blocks:
        for column in block.T:
            if (classes or block.shape[1]) != 2 or label == 1:
                areas.append(_area(labels == label, column))
            label += 1
    known = [area for area in areas if area is not None]
    return 100 * sum(known) / len(known) if known else None


def _area(positive: np.ndarray, score: np.ndarray) -> float | None:
    """Return the area under the ROC curve of one class."""
    count = int(positive.sum())
    others = len(positive) - count
    if not count or not others:
        return None
    _, place, ties = np.unique(score, return_inverse=True, return_counts=True)
    ranks = np.cumsum(ties) - (ties - 1) / 2
    return float((ranks[place][positive].sum() - count * (count + 1) / 2) / (count * others))


def _answers(answer: Answer, samples: Samples) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the logits of the samples and their labels, batch by batch."""
    for start in range(0, len(samples), EVALUATION_BATCH):
        batch = slice(start, start + EVALUATION_BATCH)
        yield answer(samples.x[batch]), samples.y[batch]
