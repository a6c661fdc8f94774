"""A scale-free test of norms: how much further a client goes than most clients ever did.

    z_k = (log ‖d_k‖ − log(n_k / median n) − m) / max(σ, floor)

d_k is the update as it was sent, so it measures how far a client went from the model it received. m and σ are
the middle and the spread of the logarithms of all clients' longest updates so far, one for each client,
computed from the shortest interval that holds a majority. A minority, whichever clients take part in a round,
cannot move m or widen σ beyond the others' range; it can narrow σ, down to the floor, by gathering within
that range. Clients with more samples than most take more steps, and may go further in proportion, up to three
times.

Training begins with long steps, which shorten as clients learn, some sooner and some later. A client that
still learns goes many times further than the others, but no further than most once went. A client that turns
away from what it should learn goes further and further, or at least does not stop. So a client that goes
further than most ever did, while most no longer do, collects a little evidence in every round:

    log e_k ≥ θ · min(z_k − 2, z'_k − 3.5, 2),    z' as z, with middle and spread of this round's updates.

So this bounds what attackers send by what honest clients once sent, not by what they send now. Unlike `norm`,
it does not change when all norms are multiplied by a number, or when groups of honest clients are far from
the global model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from fedcap.detection.base import Detector, Score, get_values, registry, set_values
from fedcap.detection.view import RoundView
from fedcap.matrix import SHORTEST, evidence, shortest_majority, weighted_median
from fedcap.state import Tensors

USUAL = 3.5
"""An honest client may deviate this far now and then; more is evidence against it."""
BEYOND = 2.0
"""Few honest clients ever deviate this far."""
STILL = 2.0
"""The most that counts in a round against a client that goes on: one round alone removes no client."""
MOST = math.log(3)
"""How much further a client with more samples may go: counts are claims."""


@registry.register("robust-norm")
@dataclass(frozen=True)
class RobustNorm(Detector):
    """How much further a client goes than most clients ever did, in units of their spread."""

    revision: ClassVar[int] = 4

    limit: Annotated[float, Field(gt=0)] = 10.0
    """The largest accepted deviation in a round."""
    floor: Annotated[float, Field(gt=0)] = 0.15
    """The least spread of the logarithms: norms within some 15 % of each other count as equal."""

    @property
    def limits(self) -> Mapping[str, float]:
        """The largest deviation."""
        return {"robust-norm": self.limit}

    def score(self, view: RoundView, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        """Return the deviations of the logarithms of the norms, and store each client's longest update."""
        lengths = view.update_norms.clamp_min(SHORTEST).log()
        longest = set_values(memory, view.ids, lengths.maximum(get_values(memory, view.ids, -math.inf)))
        due = lengths - _more_samples(view)
        far, now = self._beyond(due, longest["values"]), self._beyond(due, lengths)
        still = (far - BEYOND).minimum(now - USUAL).clamp_max(STILL)
        against = evidence(far, USUAL).maximum(evidence(still, 0.0))
        return [Score("robust-norm", far, self.limit, SENTENCE, against)], longest

    def _beyond(self, lengths: Tensor, usual: Tensor) -> Tensor:
        """Return how far norms are beyond the middle of the usual ones, in units of their spread, N."""
        middle, spread = shortest_majority(usual)
        return (lengths - middle) / spread.clamp_min(self.floor)


def _more_samples(view: RoundView) -> Tensor:
    """Return the logarithm of how many times the median number of samples each client has, N, from 1 to 3."""
    counts = view.samples.double().cpu().clamp_min(1).log()
    return (counts - weighted_median(counts, view.votes)).clamp(0, MOST)


SENTENCE = "went further than most clients ever did, by {value:.1f} times their spread (limit {limit:g})"
