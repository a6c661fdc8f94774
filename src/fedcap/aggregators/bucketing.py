"""Bucketing: shuffle the updates, average them in buckets of s, and apply another rule to the averages.

Reference: Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing",
ICLR 2022. The averages differ less than the updates do, which helps rules that take difference for
malice; but M bad rows may spoil M of the ⌈N/s⌉ buckets. Breakdown: that of the inner rule with ⌈N/s⌉ rows
and M bad ones, so s times as early. The shuffle changes each round (see `base.draw`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.aggregators.base import Wrapper, draw, registry


@registry.register("bucketing")
@dataclass(frozen=True)
class Bucketing(Wrapper):
    """Another rule on the averages of random buckets of updates."""

    size: Annotated[int, Field(ge=1)] = 2
    """s: how many updates go into a bucket; the last one may hold fewer."""
    seed: int = 0

    def tolerates(self, rows: int) -> int:
        """Return what the inner rule tolerates of as many rows as there are buckets."""
        return min(rows - 1, self.inner.tolerates(-(-rows // self.size)))

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the inner rule's aggregate of the buckets' averages."""
        order = torch.randperm(len(rows), generator=draw(self.seed, rows))
        buckets = torch.split(order, self.size)
        shares = rows.new_zeros(len(buckets), len(rows))
        for bucket, members in enumerate(buckets):
            shares[bucket, members.to(rows.device)] = 1 / len(members)
        return self.inner(shares @ rows, malicious=malicious)
