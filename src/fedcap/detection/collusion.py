"""Collusion: clients who sent the same, and something that no ordinary client sends.

Two honest clients never send the same update, so of g clients who did, g − 1 at least are liars. But one of
them may be honest, and the others its copies: equality alone proves nothing against any one of them. It is
made harmless first (they share one vote), and they are accused only as far as what they sent is out of the
ordinary: longer or shorter than the others' calibrated updates, turned away from most of them, or unusually
near to or far from the mean direction of what others sent,

    z_k = max( |z(log ‖d̃_k‖)|, −z(m(cos(d̃_k, d̃_i))), |z(cos(d_k, mean_i d_i/‖d_i‖))| ),

where m is the mean of the middle half over i, and only if the same two sent the same before. A copy of an
ordinary row is ordinary, so its owner is not framed by it. Published attacks that send one vector M times
(LIE, Min-Max, Min-Sum, IPM) mostly are not ordinary.
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
        """Return how far out of the ordinary each row is that was the same as a certain other's before too.

        It is 0 for all others.
        """
        partners, rounds = owned("partners", memory), owned("rounds", memory)
        partner = recall(partners, look.ids, NOBODY)
        again = _equal_to(look, partner)
        times = torch.where(again, recall(rounds, look.ids) + 1, 1)
        value = torch.where(again, oddity(look, self), 0.0)
        proven = (value > self.limit) & (times <= TRIAL)
        against = torch.where(proven, PROOF, evidence(value, USUAL))
        score = Score("collusion", value, self.limit, SENTENCE, torch.where(again, against, -math.inf))
        partner = torch.where(again, partner, _partners(look, partner))
        kept = {
            **under("partners", remember(partners, look.ids, partner)),
            **under("rounds", remember(rounds, look.ids, times)),
        }
        return [score], kept


NOBODY = -1
TRIAL = 3
"""In so many first rounds of two being the same, what is out of the ordinary is proof; later, evidence."""
PROOF = 100.0
USUAL = 4.5
NEAR = 0.95
"""Updates at a larger cosine are near each other."""


def _equal_to(look: Look, partner: Tensor) -> Tensor:
    """Return who sent the same as its partner, an id, N flags."""
    at = torch.searchsorted(look.ids, partner.long()).clamp_max(len(look) - 1)
    there = look.ids[at] == partner.long()
    return there & look.equal[torch.arange(len(look)), at]


def _partners(look: Look, before: Tensor) -> Tensor:
    """Return the first other client who sent the same as each, N ids; if there is none, that of before."""
    others = look.equal & ~torch.eye(len(look), dtype=torch.bool)
    first = look.ids[others.int().argmax(dim=1)]
    return torch.where(others.any(dim=1), first.double(), before)


def oddity(look: Look, floors: Collusion) -> Tensor:
    """Return how far out of the ordinary each row is, N."""
    votes = look.votes
    length = deviations(look.norms.clamp_min(SHORTEST).log(), votes, floors.length_floor).abs()
    turned = -deviations(look.with_others(look.likeness), votes, floors.cosine_floor)
    central = deviations(centrality(look), votes, floors.cosine_floor).abs()
    return torch.stack([length, turned, central]).max(dim=0).values


def centrality(look: Look) -> Tensor:
    """Return the cosine of each update with the mean direction of all but those near or opposite it, N.

    So nobody can tilt a victim's mean by sending nearly the same, or nearly the opposite.
    """
    cosines = look.agreement.double()
    counted = look.votes * (cosines.abs() < NEAR)
    along = (counted * cosines).sum(dim=1)
    lengths = ((counted @ cosines) * counted).sum(dim=1).clamp_min(SHORTEST).sqrt()
    return along / lengths


SENTENCE = "sent the same as others, {value:.1f} times the spread out of the ordinary (limit {limit:g})"
