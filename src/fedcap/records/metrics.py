"""What a run's last round came to besides accuracy: loss, macro-F1, and accuracy class by class.

Of the benign clients' test samples, a_c are of class c, p_c were taken for it, t_c of these rightly:

    accuracy_c = t_c / a_c,    F1_c = 2 t_c / (a_c + p_c)

Macro-F1 is the mean of F1_c over the classes that occur, among the labels or among the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedcap.records.rounds import Tallies, Tally, finite


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
