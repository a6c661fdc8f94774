"""What is measured of a round: seconds by part, accuracy, and the malicious rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from fedcap.runs import Accuracy, ClientAccuracy, Realised, Seconds, Tallies, Tally, finite
from fedcap.training import Counts, Performed


class Stopwatch:
    """Adds up seconds by part of the round."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.parts: dict[str, float] = {}

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Add the seconds that the block takes to one part."""
        began = time.perf_counter()
        yield
        self.add(part, time.perf_counter() - began)

    def add(self, part: str, seconds: float) -> None:
        """Add seconds to one part."""
        self.parts[part] = self.parts.get(part, 0.0) + seconds

    def seconds(self) -> Seconds:
        """Return the parts, and the total since the watch was started."""
        return Seconds(**self.parts, total=time.perf_counter() - self.began)


def measure_attack(sent: Tensor, malicious: Tensor) -> Realised | None:
    """Return the malicious rows' length, and cosine with the mean of the others; none without others."""
    if bool(malicious.all()):
        return None
    rows, mean = sent[malicious], sent[~malicious].mean(dim=0)
    cosine = torch.nn.functional.cosine_similarity(rows, mean[None]).mean()
    length = torch.linalg.vector_norm(rows, dim=1).mean()
    benign = torch.linalg.vector_norm(mean)
    return Realised(*finite([float(length), float(benign), float(cosine)]))


def measure_accuracy(found: Mapping[str, Performed], sizes: Mapping[str, int], shares: bool) -> Accuracy:
    """Turn counts into percent; whoever lacks one of the two models counts with the other."""
    shared, personal = {}, {}
    for client, done in found.items():
        counts = (done.shared_correct, done.personal_correct)
        shared[client], personal[client] = (
            next((count for count in order if count is not None), 0) for order in (counts, counts[::-1])
        )
    total = sum(sizes[client] for client in found)
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


def tally(found: Mapping[str, Performed], classes: Sequence[str], shares: bool) -> Tallies:
    """Add up the clients' counts; whoever lacks one of the two models counts with the other."""
    shared = [done.shared_counts or done.personal_counts for done in found.values()]
    personal = [done.personal_counts or done.shared_counts for done in found.values()]
    return Tallies(
        list(classes), _sum(shared, len(classes)) if shares else None, _sum(personal, len(classes))
    )


def _sum(found: Sequence[Counts | None], classes: int) -> Tally:
    counts = [each for each in found if each is not None]
    none = (0,) * classes
    return Tally(
        [sum(column) for column in zip(none, *(each.actual for each in counts), strict=True)],
        [sum(column) for column in zip(none, *(each.predicted for each in counts), strict=True)],
        [sum(column) for column in zip(none, *(each.correct for each in counts), strict=True)],
        finite(sum((each.loss for each in counts), 0.0)),
    )
