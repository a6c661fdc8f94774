"""A scale-free test of length: how much further a client goes than most ever did.

    z_k = (log ‖d_k‖ − log(n_k / median n) − m) / max(σ, floor)

d_k is the update as it was sent, so what counts is how far a client went from the model it got. m and σ are
middle and spread of the logarithms of everybody's longest update so far, one for each client, by the shortest
interval that holds a majority: a minority, whoever takes part in a round, cannot move m, or widen σ, beyond
the others' range; it can narrow σ, down to the floor, by bunching among them. Clients who have more samples
than most take more steps, and may go further in proportion, up to three times.

Training begins with long steps, which shorten as clients learn what there is to learn, some sooner and some
later: those who still learn then go many times further than the others, but no further than most once went.
Who turns away from what it should learn goes further and further, or at least does not stop: whoever still
goes further than most ever did, while most do not any more, is suspected for that, a little in every round,

    log e_k ≥ θ · min(z_k − 2, z'_k − 3.5, 2),    z' as z, with middle and spread of this round's updates.

So this bounds what attackers send by what honest clients once sent, not by what they send now.

The paper's limit, `norm`, is on the length from the global model: it depends on the network, the learning
rate and the number of steps, and clients who are few of their kind lie far from the global model, however
honest they are. Here all lengths may be multiplied by a number, and groups may lie wherever they like, and
nothing changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedcap.detection.base import Detector, Score, recall, registry, remember
from fedcap.detection.view import Look
from fedcap.matrix import evidence, shortest_majority, weighted_median
from fedcap.state import Tensors

SHORTEST = 1e-12
USUAL = 3.5
"""So far out an honest client may be now and then: beyond it, distance is evidence."""
BEYOND = 2.0
"""So far out few honest clients ever were."""
STILL = 2.0
"""So many units at most count in a round against who has not stopped: one round alone removes nobody."""
MOST = math.log(3)
"""How much further more samples may take anybody: counts are claims."""


@registry.register("robust-norm")
@dataclass(frozen=True)
class RobustNorm(Detector):
    """How much further a client goes than most ever did, in units of their spread."""

    revision: ClassVar[int] = 4

    limit: Annotated[float, Field(gt=0)] = 10.0
    """The largest deviation that is believed in a round."""
    floor: Annotated[float, Field(gt=0)] = 0.15
    """The least spread of the logarithms: lengths within some 15 % of each other are taken for equal."""

    @property
    def limits(self) -> Mapping[str, float]:
        """The largest deviation."""
        return {"robust-norm": self.limit}

    def score(self, look: Look, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        """Return the deviations of the logarithms of the lengths, and remember everybody's longest."""
        lengths = look.lengths.clamp_min(SHORTEST).log()
        longest = remember(memory, look.ids, lengths.maximum(recall(memory, look.ids, -math.inf)))
        due = lengths - _more_samples(look)
        far, now = self._beyond(due, longest["values"]), self._beyond(due, lengths)
        still = (far - BEYOND).minimum(now - USUAL).clamp_max(STILL)
        against = evidence(far, USUAL).maximum(evidence(still, 0.0))
        return [Score("robust-norm", far, self.limit, SENTENCE, against)], longest

    def _beyond(self, lengths: Tensor, usual: Tensor) -> Tensor:
        """Return how far lengths are beyond the usual ones' middle, in units of their spread, N."""
        middle, spread = shortest_majority(usual)
        return (lengths - middle) / spread.clamp_min(self.floor)


def _more_samples(look: Look) -> Tensor | float:
    """Return the logarithm of how many times the median number of samples each client has, N, from 1 to 3."""
    if look.samples is None:
        return 0.0
    counts = look.samples.double().cpu().clamp_min(1).log()
    return (counts - weighted_median(counts, look.votes)).clamp(0, MOST)


SENTENCE = "went further than most ever did by {value:.1f} times their spread (limit {limit:g})"
