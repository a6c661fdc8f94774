"""Strikes: a client is removed once it has been accused in a number of rounds.

With one strike, the default, the first accusation removes it: the paper's policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from fedcap.detection.base import Accusation, Policy, Score, get_values, policies, set_values
from fedcap.detection.view import RoundView
from fedcap.state import Tensors


@policies.register("strikes")
@dataclass(frozen=True)
class Strikes(Policy):
    """Remove clients that were accused in a number of rounds; at once, by default."""

    strikes: Annotated[int, Field(ge=1)] = 1
    """The number of rounds with an accusation after which a client is removed."""

    def decide(
        self, accused: Mapping[int, Accusation], scores: Sequence[Score], view: RoundView, memory: Tensors
    ) -> tuple[Mapping[int, Accusation], Tensors]:
        """Count this round's accusations, and remove the clients that have enough."""
        if not accused:
            return {}, memory
        ids = torch.tensor(list(accused), dtype=torch.long)
        counts = get_values(memory, ids) + 1
        guilty = set(ids[counts >= self.strikes].tolist())
        removed = {client: reason for client, reason in accused.items() if client in guilty}
        return removed, set_values(memory, ids, counts)
