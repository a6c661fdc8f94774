"""Collusion: clients who sent the same, and something that no ordinary client sends.

Two honest clients never send the same update, so of g clients who did, g − 1 at least are liars. But one of them
may be honest, and the others its copies: equality alone proves nothing against any one of them. It is made
harmless first (they share one vote), and they are accused only as far as what they sent is out of the ordinary:
longer or shorter than the others' calibrated updates, or turned away from most of them,

    z_k = max( |z(log ‖d̃_k‖)|, −z(median_i cos(d̃_k, d̃_i)) ).

A copy of an ordinary row is ordinary, so its owner cannot be framed by it. Published attacks that send one
vector M times (LIE, Min-Max, Min-Sum, IPM) are not ordinary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.detection.base import Detector, Look, Score, recall, registry, remember
from fedcap.detection.robust_norm import SHORTEST
from fedcap.detection.spread import deviations, evidence
from fedcap.state import Tensors

USUAL = 2.0


@registry.register("collusion")
@dataclass(frozen=True)
class Collusion(Detector):
    """Clients who sent the same update, as far as it is out of the ordinary."""

    limit: Annotated[float, Field(gt=0)] = 3.0
    """How far out of the ordinary a row may be that several sent."""
    length_floor: Annotated[float, Field(gt=0)] = 0.15
    """The least spread of the lengths' logarithms."""
    cosine_floor: Annotated[float, Field(gt=0)] = 0.05
    """The least spread of the cosines."""

    @property
    def limits(self) -> Mapping[str, float]:
        """The largest deviation."""
        return {"collusion": self.limit}

    def score(self, look: Look, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        """Return the deviations of those who sent the same as somebody else; 0 for all others."""
        sizes = look.equal.sum(dim=1)
        several = sizes > 1
        length = deviations(look.norms.clamp_min(SHORTEST).log(), look.votes, self.length_floor).abs()
        turned = -deviations(turning(look), look.votes, self.cosine_floor)
        far = torch.where(several, torch.maximum(length, turned), 0.0)
        # That g − 1 of g are liars counts once, when a client is first found among them.
        new = several & (recall(memory, look.ids) == 0)
        liars = torch.where(new, (sizes - 1).clamp_min(1).double().log(), 0.0)
        against = torch.where(several, evidence(far, USUAL) + liars, -math.inf)
        kept = remember(memory, look.ids[several], torch.ones(int(several.sum())))
        return [Score("collusion", far, self.limit, SENTENCE, against)], kept if bool(
            several.any()
        ) else memory


def turning(look: Look) -> Tensor:
    """Return the median cosine of each calibrated update with those of all who did not send the same, N."""
    others = look.likeness.double().masked_fill(look.equal, math.nan)
    middle = torch.nanmedian(others, dim=1).values
    return torch.where(middle.isnan(), 0.0, middle)


SENTENCE = "sent the same as others, {value:.1f} times the spread out of the ordinary (limit {limit:g})"
