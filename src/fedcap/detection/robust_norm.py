"""A scale-free test of length: how much further a client goes than most did when they went furthest.

    z_k = (log ‖d_k‖ − log(n_k / median n) − m) / σ,  m = median of log ‖d_i‖,  σ = max(1.4826 · MAD, floor)

d_k is the update as it was sent, so what counts is how far a client went from the model it got. Clients who
have more samples than most take more steps, and may go further in proportion, up to three times. m and σ are
those of the round, up to now, in which m was largest. For training starts with long steps, which shorten as
clients learn what there is to learn, some sooner and some later: by then those who still learn go many times
further than the median, but no further than most once went. Who turns away from what it should learn goes
further and further.

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

from fedcap.detection.base import Detector, Look, Score, registry
from fedcap.detection.spread import evidence, middle_and_spread, weighted_median
from fedcap.state import Tensors

SHORTEST = 1e-12
USUAL = 4.0
MOST = math.log(3)
"""How much further more samples may take anybody: counts are claims."""
RISE = math.log(2)
"""How much m rises in a round at most: if few take part, attackers may for once be most of them."""


@registry.register("robust-norm")
@dataclass(frozen=True)
class RobustNorm(Detector):
    """How much further a client goes than most did when they went furthest, in units of their spread."""

    revision: ClassVar[int] = 2

    limit: Annotated[float, Field(gt=0)] = 8.0
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
        middle, spread = middle_and_spread(lengths, look.votes, self.floor)
        usual = memory.get("middle", middle)
        if middle > usual + RISE:
            memory = {**memory, "middle": usual + RISE}
        elif middle >= usual:
            memory = {"middle": middle, "spread": spread}
        far = (lengths - _more_samples(look) - memory["middle"]) / memory["spread"]
        return [Score("robust-norm", far, self.limit, SENTENCE, evidence(far, USUAL))], memory


def _more_samples(look: Look) -> Tensor | float:
    """Return the logarithm of how many times the median number of samples each client has, N, from 1 to 3."""
    if look.samples is None:
        return 0.0
    counts = look.samples.double().cpu().clamp_min(1).log()
    return (counts - weighted_median(counts, look.votes)).clamp(0, MOST)


SENTENCE = "went further than most ever did by {value:.1f} times their spread (limit {limit:g})"
