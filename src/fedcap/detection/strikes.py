"""Strikes: a client is removed once it has been accused in a number of rounds.

With one strike, the default, the first accusation removes it: the paper's policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from fedcap.detection.base import Policy, Reason, Score, policies, recall, remember
from fedcap.detection.view import Look
from fedcap.state import Tensors


@policies.register("strikes")
@dataclass(frozen=True)
class Strikes(Policy):
    """Remove whoever has been accused in so many rounds; at once, by default."""

    strikes: Annotated[int, Field(ge=1)] = 1
    """How many rounds' accusations it takes."""

    def decide(
        self, accused: Mapping[int, Reason], scores: Sequence[Score], look: Look, memory: Tensors
    ) -> tuple[Mapping[int, Reason], Tensors]:
        """Count this round's accusations, and remove whoever has enough."""
        if not accused:
            return {}, memory
        ids = torch.tensor(list(accused), dtype=torch.long)
        counts = recall(memory, ids) + 1
        guilty = set(ids[counts >= self.strikes].tolist())
        removed = {client: reason for client, reason in accused.items() if client in guilty}
        return removed, remember(memory, ids, counts)
