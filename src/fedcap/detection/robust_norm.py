"""A scale-free test of length: how much longer a calibrated update is than the others', in their own spread.

    z_k = (log ‖d̃_k‖ − median) / max(1.4826 · MAD, floor)

The paper's limit on the length itself, `norm`, depends on the network's size, the learning rate and the
number of steps. This one does not: all lengths may be multiplied by a number and nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from fedcap.detection.base import Detector, Look, Score, registry
from fedcap.detection.spread import deviations, evidence
from fedcap.state import Tensors

SHORTEST = 1e-12
USUAL = 4.0


@registry.register("robust-norm")
@dataclass(frozen=True)
class RobustNorm(Detector):
    """How much longer a calibrated update is than the others', in units of their spread."""

    limit: Annotated[float, Field(gt=0)] = 6.0
    """The largest deviation that is believed in a round."""
    floor: Annotated[float, Field(gt=0)] = 0.1
    """The least spread of the logarithms: lengths within some 10 % of each other are taken for equal."""

    @property
    def limits(self) -> Mapping[str, float]:
        """The largest deviation."""
        return {"robust-norm": self.limit}

    def score(self, look: Look, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        """Return the deviations of the logarithms of the norms."""
        far = deviations(look.norms.clamp_min(SHORTEST).log(), look.votes, self.floor)
        return [Score("robust-norm", far, self.limit, SENTENCE, evidence(far, USUAL))], memory


SENTENCE = "longer than the others by {value:.1f} times their spread (limit {limit:g})"
