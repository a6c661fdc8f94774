"""Evidence: a client is removed once the evidence against it, added up over rounds, is too strong for chance.

Each round the strongest evidence of any detector is added to the client's total, in logarithms, and a total
below zero is set to zero, so that good rounds give no credit in advance:

    E_k ← max(0, E_k + log e_k),    removed if E_k ≥ log(1/δ)

δ bounds the chance that one detector ever removes a given honest client on account of rounds from a given one
on, if honest deviations are as `matrix.evidence` assumes. A value that a detector calls proof is enough at
once. A client that is over a score's limit and not removed is suspected: it takes part, and its uploads do
not count.

No client is removed in a round in which the median norm jumped, because then the common point did. Neither a
majority of a round's participants nor a majority of all clients that ever took part is removed: then the
server's models are more likely broken. Clients that return under new names can use this budget up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.detection.base import Accusation, Policy, Score, get_values, policies, set_values
from fedcap.detection.view import RoundView
from fedcap.state import Tensors, owned, under

JUMP = math.log(3)


@policies.register("evidence")
@dataclass(frozen=True)
class Evidence(Policy):
    """Add up evidence over rounds, and remove clients against which it could hardly be chance."""

    chance: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    """δ: the chance that a given honest client is ever removed on account of rounds from a given one on."""

    def decide(
        self, accused: Mapping[int, Accusation], scores: Sequence[Score], view: RoundView, memory: Tensors
    ) -> tuple[Mapping[int, Accusation], Tensors]:
        """Add this round's evidence, and remove the clients with enough evidence against them."""
        lost = {client: reason for client, reason in accused.items() if not math.isfinite(reason.value)}
        guilty, after = self._guilty(scores, view, memory)
        gone = owned("gone", memory)
        before = gone.get("ids", view.ids[:0]).tolist()
        ever = {*after["books.ids"].tolist(), *before, *lost}
        removed: dict[int, Accusation] = {}
        for group in (lost, guilty):
            here, in_total = len(removed) + len(group), len(before) + len(removed) + len(group)
            if 2 * here <= len(lost) + len(view) and 2 * in_total <= len(ever):
                removed |= group
        out = torch.tensor(sorted(removed), dtype=view.ids.dtype)
        # Stored with `set_values`, so that `Defence.forget` finds them.
        after |= under("gone", set_values(gone, out, torch.ones(len(out))))
        return removed, after

    def _guilty(
        self, scores: Sequence[Score], view: RoundView, memory: Tensors
    ) -> tuple[dict[int, Accusation], dict[str, Tensor]]:
        """Return the clients with enough evidence against them, and the memory with this round's evidence."""
        known = [score for score in scores if score.evidence is not None]
        totals, after = owned("books", memory), dict(memory)
        total = get_values(totals, view.ids)
        guilty: dict[int, Accusation] = {}
        if known and len(view):
            after["length"] = view.norms.log().median()
            if not ("length" in memory and bool(after["length"] - memory["length"] > JUMP)):
                total = (total + _strongest(known)).clamp(0, self._enough)
                rows = (total >= self._enough).nonzero().flatten().tolist()
                guilty = {int(view.ids[row]): _accusation(known, row, float(total[row])) for row in rows}
        return guilty, after | under("books", set_values(totals, view.ids, total))

    @property
    def _enough(self) -> float:
        return -math.log(self.chance)


def _accusation(scores: Sequence[Score], row: int, total: float) -> Accusation:
    """Return the strongest accusation of the round, with the total evidence."""
    strongest = max(scores, key=lambda score: _at(score.evidence, row))
    found = strongest.accusation(row)
    sentence = f"{found.sentence}; evidence {math.exp(min(total, 60)):.2g} to 1"
    return Accusation(found.score, found.value, found.limit, sentence)


def _strongest(scores: Sequence[Score]) -> Tensor:
    """Return the strongest evidence of any score, N; a value that is not a number is no evidence."""
    values = torch.stack([score.evidence for score in scores if score.evidence is not None])
    return torch.where(values.isnan(), -torch.inf, values).max(dim=0).values


def _at(values: Tensor | None, row: int) -> float:
    return -math.inf if values is None else float(values[row])
