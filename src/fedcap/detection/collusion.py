"""Collusion: clients that sent the same update, which differs from what one client's training gives.

Two honest clients never send the same update, nor the same but for noise (`noise.noise_apart`). So of g
clients that did, at least g − 1 are malicious. But one of them may be honest and the others its copies, so
equality alone proves nothing against any one of them. Equal rows share one vote, and their senders are
accused only as far as the row is unusual. A row that attackers have in common is computed from many clients'
updates, or from none. Such a row is unusually near to or far from the mean direction of the others, is more
even over the weights, or has more weights of one sign, whatever its norm and direction:

    z_k² = z(cos(d_k, mean_i d_i/‖d_i‖))² + max(0, z(log ‖d_k‖₁/‖d_k‖₂))² + z(Σ_j d_kj / (√D ‖d_k‖₂))²

The smaller of two values counts: this round's, and that of the last round in which the client sent the same
as another. It counts only if the other client was the same in both. A copy of an ordinary row is ordinary, so
its owner is not framed by it; an honest client may be much shorter than the others or point elsewhere, and
neither counts here. An honest row may be unusual now and then, and copiers may wait for that. So half of what
was unusual is forgotten in each round in which a client sends an ordinary row that no other client sends.
Published attacks that send one vector M times (LIE, Min-Max, Min-Sum, IPM) are unusual.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedcap.detection.base import Detector, Score, get_values, registry, set_values
from fedcap.detection.view import RoundView
from fedcap.matrix import SHORTEST, deviations, evidence
from fedcap.state import Tensors, owned, under


@registry.register("collusion")
@dataclass(frozen=True)
class Collusion(Detector):
    """How unusual an update is that several clients sent in several rounds."""

    revision: ClassVar[int] = 2

    limit: Annotated[float, Field(gt=0)] = 5.0
    """How unusual a row may be that several clients sent."""

    @property
    def limits(self) -> Mapping[str, float]:
        """The largest deviation."""
        return {"collusion": self.limit}

    def score(self, view: RoundView, memory: Tensors) -> tuple[Sequence[Score], Tensors]:
        """Return how unusual each row is that equals its partner's row again; 0 for other rows."""
        partners, rounds, before = (owned(name, memory) for name in ("partners", "rounds", "before"))
        partner = get_values(partners, view.ids, NO_PARTNER)
        again = _equal_to(view, partner)
        times = torch.where(again, get_values(rounds, view.ids) + 1, 1)
        last = get_values(before, view.ids)
        now = _unusual(view, last)
        value = torch.where(again, now.minimum(last), 0.0)
        proven = (value > self.limit) & (times <= TRIAL)
        against = torch.where(proven, PROOF, evidence(value, USUAL))
        score = Score("collusion", value, self.limit, SENTENCE, torch.where(again, against, -math.inf))
        partner = torch.where(again, partner, _partners(view, partner))
        kept = {
            **under("partners", set_values(partners, view.ids, partner)),
            **under("rounds", set_values(rounds, view.ids, times)),
            **under("before", set_values(before, view.ids, now)),
        }
        return [score], kept


NO_PARTNER = -1
TRIAL = 4
"""In this number of first rounds in which two rows are equal, an unusual row is proof; later, evidence."""
PROOF = 100.0
USUAL = 4.5
NEAR = 0.95
"""Updates at a larger cosine count as near each other."""
COSINE, EVENNESS, SIGNS = 0.05, 0.05, 0.02
"""The least spreads of the three numbers."""


def _equal_to(view: RoundView, partner: Tensor) -> Tensor:
    """Return which clients sent the same as their partner, an id each, N flags."""
    at = torch.searchsorted(view.ids, partner.long()).clamp_max(len(view) - 1)
    there = view.ids[at] == partner.long()
    return there & view.duplicates[torch.arange(len(view)), at]


def _partners(view: RoundView, before: Tensor) -> Tensor:
    """Return the first other client that sent the same as each, N ids; without one, the partner before."""
    others = view.duplicates & ~torch.eye(len(view), dtype=torch.bool)
    first = view.ids[others.int().argmax(dim=1)]
    return torch.where(others.any(dim=1), first.double(), before)


def _unusual(view: RoundView, last: Tensor) -> Tensor:
    """Return how unusual each duplicated row is; for other clients what remains of earlier values, N."""
    copied = view.votes < 1
    if not bool((copied | (last > 0)).any()):
        return last
    found = unusualness(view)
    return torch.where(copied, found, last.minimum((last + found) / 2))


def unusualness(view: RoundView) -> Tensor:
    """Return how far each row is from what one client's training gives, N."""
    votes, updates, length = view.votes, view.updates, view.update_norms.clamp_min(SHORTEST)
    absolute = torch.linalg.vector_norm(updates, 1, dim=1).double().cpu().clamp_min(SHORTEST)
    total = updates.sum(dim=1).double().cpu()
    central = deviations(centrality(view), votes, COSINE)
    even = deviations((absolute / length).log(), votes, EVENNESS).clamp_min(0)
    lopsided = deviations(total / length / updates.shape[1] ** 0.5, votes, SIGNS)
    return (central.square() + even.square() + lopsided.square()).sqrt()


def centrality(view: RoundView) -> Tensor:
    """Return the cosine of each update with the mean direction of all but those near or opposite it, N.

    So no client can tilt a victim's mean by sending nearly the same, or nearly the opposite.
    """
    cosines = view.update_cosines.double()
    counted = view.votes * (cosines.abs() < NEAR)
    along = (counted * cosines).sum(dim=1)
    lengths = ((counted @ cosines) * counted).sum(dim=1).clamp_min(SHORTEST).sqrt()
    return along / lengths


SENTENCE = "sent the same as others, unusual by {value:.1f} times the spread (limit {limit:g})"
