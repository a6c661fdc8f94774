"""Collusion: clients who sent the same, and something that no single client's training would give.

Two honest clients never send the same update, nor the same but for noise (`sameness`), so of g clients who
did, g − 1 at least are liars. But one of them may be honest, and the others its copies: equality alone proves
nothing against any one of them. It is made harmless first (they share one vote), and they are accused only as
far as what they sent is out of the ordinary. What attackers have to send in common is made of many clients'
updates, or of none, and that shows, however long it is and wherever it points: it is unusually near to or far
from the mean direction of the others, more even over the weights, or has more of one sign,

    z_k² = z(cos(d_k, mean_i d_i/‖d_i‖))² + max(0, z(log ‖d_k‖₁/‖d_k‖₂))² + z(Σ_j d_kj / (√D ‖d_k‖₂))²,

in this round and in the last in which a client sent the same as another; the smaller of the two counts, and
only if the other was the same before too. A copy of an ordinary row is ordinary, so its owner is not framed
by it: honest clients may be much shorter than the others, or turned away from them, and neither counts here.
An honest row may be odd now and then, and copiers may wait for that; so what was odd is half forgotten in
each round in which a client sends something ordinary that nobody else sends. Published attacks that send one
vector M times (LIE, Min-Max, Min-Sum, IPM) are not ordinary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedcap.detection.base import Detector, Score, recall, registry, remember
from fedcap.detection.robust_norm import SHORTEST
from fedcap.detection.view import Look
from fedcap.matrix import deviations, evidence
from fedcap.state import Tensors, owned, under


@registry.register("collusion")
@dataclass(frozen=True)
class Collusion(Detector):
    """Clients who sent the same update in several rounds, as far as it is out of the ordinary."""

    revision: ClassVar[int] = 2

    limit: Annotated[float, Field(gt=0)] = 5.0
    """How far out of the ordinary a row may be that several sent."""

    @property
    def limits(self) -> Mapping[str, float]:
        """The largest deviation."""
        return {"collusion": self.limit}

    def score(self, look: Look, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        """Return how far out of the ordinary each row is that was the same as a certain other's before too.

        It is 0 for all others.
        """
        partners, rounds, before = (owned(name, memory) for name in ("partners", "rounds", "before"))
        partner = recall(partners, look.ids, NOBODY)
        again = _equal_to(look, partner)
        times = torch.where(again, recall(rounds, look.ids) + 1, 1)
        last = recall(before, look.ids)
        now = _odd(look, last)
        value = torch.where(again, now.minimum(last), 0.0)
        proven = (value > self.limit) & (times <= TRIAL)
        against = torch.where(proven, PROOF, evidence(value, USUAL))
        score = Score("collusion", value, self.limit, SENTENCE, torch.where(again, against, -math.inf))
        partner = torch.where(again, partner, _partners(look, partner))
        kept = {
            **under("partners", remember(partners, look.ids, partner)),
            **under("rounds", remember(rounds, look.ids, times)),
            **under("before", remember(before, look.ids, now)),
        }
        return [score], kept


NOBODY = -1
TRIAL = 4
"""In so many first rounds of two being the same, what is out of the ordinary is proof; later, evidence."""
PROOF = 100.0
USUAL = 4.5
NEAR = 0.95
"""Updates at a larger cosine are near each other."""
COSINE, EVENNESS, SIGNS = 0.05, 0.05, 0.02
"""The least spreads of the three numbers that tell what is ordinary."""


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


def _odd(look: Look, last: Tensor) -> Tensor:
    """Return how odd each row is that others sent too, and of other clients what is left of before, N."""
    copied = look.votes < 1
    if not bool((copied | (last > 0)).any()):
        return last
    odd = oddity(look)
    return torch.where(copied, odd, last.minimum((last + odd) / 2))


def oddity(look: Look) -> Tensor:
    """Return how far each row is from what one client's training gives, N."""
    votes, updates, length = look.votes, look.updates, look.lengths.clamp_min(SHORTEST)
    absolute = torch.linalg.vector_norm(updates, 1, dim=1).double().cpu().clamp_min(SHORTEST)
    total = updates.sum(dim=1).double().cpu()
    central = deviations(centrality(look), votes, COSINE)
    even = deviations((absolute / length).log(), votes, EVENNESS).clamp_min(0)
    lopsided = deviations(total / length / updates.shape[1] ** 0.5, votes, SIGNS)
    return (central.square() + even.square() + lopsided.square()).sqrt()


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
