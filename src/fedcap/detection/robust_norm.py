"""A scale-free test of length: how much further a client went than the others, in their own spread.

    z_k = (log ‖d_k‖ − log(n_k / median n) − median) / max(1.4826 · MAD, floor)

d_k is the update as it was sent, so what counts is how far a client went from the model it got. Clients who
have more samples than most take more steps, and may go further in proportion, up to three times. The
paper's limit, `norm`, is on the length from the global model: it depends on the network, the learning rate
and the number of steps, and clients who are few of their kind lie far from the global model, however honest
they are. Here all lengths may be multiplied by a number, and groups may lie wherever they like, and nothing
changes.

Once most clients have learnt what they can, they hardly move, and whoever still learns goes many times
further. So the median counts as a third of the largest that it was at least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedcap.detection.base import Detector, Look, Score, registry
from fedcap.detection.spread import deviations, evidence, weighted_median
from fedcap.state import Tensors

SHORTEST = 1e-12
USUAL = 4.5
MOST = math.log(3)
"""How much further more samples may take anybody: counts are claims."""
SETTLED = math.log(1 / 3)
"""What the median length falls to at least, from the largest that it was."""


@registry.register("robust-norm")
@dataclass(frozen=True)
class RobustNorm(Detector):
    """How much further a client went from the model it was sent than the others, in units of their spread."""

    limit: Annotated[float, Field(gt=0)] = 6.0
    """The largest deviation that is believed in a round."""
    floor: Annotated[float, Field(gt=0)] = 0.15
    """The least spread of the logarithms: lengths within some 15 % of each other are taken for equal."""

    @property
    def limits(self) -> Mapping[str, float]:
        """The largest deviation."""
        return {"robust-norm": self.limit}

    def score(self, look: Look, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        """Return the deviations of the logarithms of the lengths."""
        lengths = look.lengths.clamp_min(SHORTEST).log()
        middle = weighted_median(lengths, look.votes)
        largest = middle.maximum(memory.get("largest", middle))
        settled = (largest + SETTLED - middle).clamp_min(0)
        far = deviations(lengths, look.votes, self.floor, less=_more_samples(look) + settled)
        return [Score("robust-norm", far, self.limit, SENTENCE, evidence(far, USUAL))], {"largest": largest}


def _more_samples(look: Look) -> Tensor | float:
    """Return the logarithm of how many times the median number of samples each client has, N, from 1 to 3."""
    if look.samples is None:
        return 0.0
    counts = look.samples.double().cpu().clamp_min(1).log()
    return (counts - weighted_median(counts, look.votes)).clamp(0, MOST)


SENTENCE = "went further than the others by {value:.1f} times their spread (limit {limit:g})"
