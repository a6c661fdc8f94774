"""Direction: whose update goes against most of the others', much more so than anybody else's.

    z_k = −(s_k − median) / max(1.4826 · MAD, floor),    s_k = m(cos(d_k, d_i))

over the updates as they were sent, if s_k is negative; m is the mean of the middle half over i. It finds
attackers who pass for a victim's kin by what the server compares, and pull against where all of them want
to go. But a client whose data are unlike anybody's may well go against the others too; so this is for
federations in which nobody should, and not a default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from fedcap.detection.base import Detector, Look, Score, registry
from fedcap.detection.spread import deviations, evidence
from fedcap.state import Tensors

USUAL = 4.0


@registry.register("direction")
@dataclass(frozen=True)
class Direction(Detector):
    """How much more a client's update goes against the others' than theirs do."""

    limit: Annotated[float, Field(gt=0)] = 6.0
    """The largest deviation that is believed in a round."""
    floor: Annotated[float, Field(gt=0)] = 0.05
    """The least spread of the cosines."""

    @property
    def limits(self) -> Mapping[str, float]:
        """The largest deviation."""
        return {"direction": self.limit}

    def score(self, look: Look, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        """Return the deviations of those who go against most others; 0 for all others."""
        support = look.with_others(look.agreement)
        far = torch.where(support < 0, -deviations(support, look.votes, self.floor), 0.0)
        return [Score("direction", far, self.limit, SENTENCE, evidence(far, USUAL))], memory


SENTENCE = "against most others, by {value:.1f} times their spread (limit {limit:g})"
