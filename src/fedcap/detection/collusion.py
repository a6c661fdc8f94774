"""Collusion: clients who sent the same, and something that no ordinary client sends.

Two honest clients never send the same update, so of g clients who did, g − 1 at least are liars. But one of
them may be honest, and the others its copies: equality alone proves nothing against any one of them. It is
made harmless first (they share one vote), and they are accused only as far as what they sent is out of the
ordinary: longer or shorter than the others' calibrated updates, turned away from most of them, or unusually
near to or far from the mean of what was sent,

    z_k = max( |z(log ‖d̃_k‖)|, −z(median_i cos(d̃_k, d̃_i)), |z(cos(d_k, mean d))| ).

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
from fedcap.matrices import Rows, cosines
from fedcap.state import Tensors, owned, under


@registry.register("collusion")
@dataclass(frozen=True)
class Collusion(Detector):
    """Clients who sent the same update in several rounds, as far as it is out of the ordinary."""

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
        """Return the largest deviation of the first rounds in which a client sent the same as others.

        It is 0 for all others, and for those who did so once.
        """
        several = look.equal.sum(dim=1) > 1
        seen, worst = (owned(name, memory) for name in ("seen", "worst"))
        rounds = recall(seen, look.ids) + several
        odd, before = oddity(look, self), recall(worst, look.ids)
        far = torch.where(several & (rounds <= TRIAL), torch.maximum(before, odd), before)
        again = several & (rounds > 1)
        value = torch.where(again, far, 0.0)
        kept = {
            **under("seen", remember(seen, look.ids, rounds)),
            **under("worst", remember(worst, look.ids, far)),
        }
        against = torch.where(again, evidence(odd, USUAL), -math.inf)
        against = torch.where(value > self.limit, CERTAIN, against)
        return [Score("collusion", value, self.limit, SENTENCE, against)], kept


TRIAL = 3
"""What is out of the ordinary in so many first rounds of being the same is proof; later, it is evidence."""
CERTAIN = 100.0
USUAL = 4.5


def oddity(look: Look, floors: Collusion) -> Tensor:
    """Return how far out of the ordinary each row is, N."""
    votes = look.votes
    length = deviations(look.norms.clamp_min(SHORTEST).log(), votes, floors.length_floor).abs()
    turned = -deviations(turning(look), votes, floors.cosine_floor)
    mean = (votes.to(look.updates) @ look.updates)[None]
    centre = cosines(Rows(look.updates), Rows(mean))[:, 0].cpu().double()
    central = deviations(centre, votes, floors.cosine_floor).abs()
    return torch.stack([length, turned, central]).max(dim=0).values


def turning(look: Look) -> Tensor:
    """Return the median cosine of each calibrated update with those of all who did not send the same, N."""
    others = look.likeness.double().masked_fill(look.equal, math.nan)
    middle = torch.nanmedian(others, dim=1).values
    return torch.where(middle.isnan(), 0.0, middle)


SENTENCE = "sent the same as others, {value:.1f} times the spread out of the ordinary (limit {limit:g})"
