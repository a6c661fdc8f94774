"""Evidence: a client is removed once what speaks against it, over rounds, could hardly come of chance.

Each round the strongest evidence of any detector is added to what there was, in logarithms, and what is
left of good rounds never counts in advance:

    E_k ← max(0, E_k + log e_k),    removed if E_k ≥ log(1/δ)

δ bounds the chance that a given honest client is ever removed by one detector, on account of rounds from a
given one on, if honest deviations are as `spread.evidence` supposes. What a detector calls proof is enough
at once, whatever δ is. Whoever is over a score's limit and not removed is on probation: it takes part, and
what it sends counts for nobody. Nobody is removed in a round in which everybody's length jumped, since then
the common point did. Nor is ever a majority removed, be it of those who take part or of all who ever did:
then it is rather the server's models that are broken. So half of all clients ever seen is the most that
is removed; who can come back under new names uses that up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.detection.base import Policy, Reason, Score, policies, recall, remember
from fedcap.detection.look import Look
from fedcap.state import Tensors, owned, under

JUMP = math.log(3)


@policies.register("evidence")
@dataclass(frozen=True)
class Evidence(Policy):
    """Add up evidence over rounds, and remove whoever's could hardly be chance."""

    chance: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    """δ: the chance that a given honest client is ever removed on account of rounds from a given one on."""

    def decide(
        self, accused: Mapping[int, Reason], scores: Sequence[Score], look: Look, memory: Tensors
    ) -> tuple[Mapping[int, Reason], Tensors]:
        """Add this round's evidence, and remove whoever has enough against it."""
        lost = {client: reason for client, reason in accused.items() if not math.isfinite(reason.value)}
        guilty, after = self._guilty(scores, look, memory)
        gone = owned("gone", memory)
        before = gone.get("ids", look.ids[:0]).tolist()
        ever = {*after["books.ids"].tolist(), *before, *lost}
        removed: dict[int, Reason] = {}
        for group in (lost, guilty):
            here, all_told = len(removed) + len(group), len(before) + len(removed) + len(group)
            if 2 * here <= len(lost) + len(look) and 2 * all_told <= len(ever):
                removed |= group
        out = torch.tensor(sorted(removed), dtype=look.ids.dtype)
        after |= under("gone", remember(gone, out, torch.ones(len(out))))  # so that `Judge.forget` knows them
        return removed, after

    def _guilty(
        self, scores: Sequence[Score], look: Look, memory: Tensors
    ) -> tuple[dict[int, Reason], dict[str, Tensor]]:
        """Return against whom there is enough, and the memory with this round's evidence."""
        told = [score for score in scores if score.evidence is not None]
        books, after = owned("books", memory), dict(memory)
        found = recall(books, look.ids)
        guilty: dict[int, Reason] = {}
        if told and len(look):
            after["length"] = look.norms.log().median()
            if not ("length" in memory and bool(after["length"] - memory["length"] > JUMP)):
                found = (found + _strongest(told)).clamp(0, self._enough)
                rows = (found >= self._enough).nonzero().flatten().tolist()
                guilty = {int(look.ids[row]): self._reason(told, row, float(found[row])) for row in rows}
        return guilty, after | under("books", remember(books, look.ids, found))

    @property
    def _enough(self) -> float:
        return -math.log(self.chance)

    def _reason(self, scores: Sequence[Score], row: int, found: float) -> Reason:
        """Return the strongest accusation of the round, with what there was before."""
        strongest = max(scores, key=lambda score: _at(score.evidence, row))
        said = strongest.reason(row)
        return Reason(
            said.score,
            said.value,
            said.limit,
            f"{said.sentence}; evidence {math.exp(min(found, 60)):.2g} to 1",
        )


def _strongest(scores: Sequence[Score]) -> Tensor:
    """Return the strongest evidence of any score, N; what is no number says nothing."""
    values = torch.stack([score.evidence for score in scores if score.evidence is not None])
    return torch.where(values.isnan(), -torch.inf, values).max(dim=0).values


def _at(values: Tensor | None, row: int) -> float:
    return -math.inf if values is None else float(values[row])
