"""Bucketing: shuffle the updates, average them in buckets of s, and apply another rule to the averages.

Reference: Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing",
ICLR 2022. The averages differ less than the updates do, which helps rules that mistake honest clients with
unusual data for bad ones. But each bad row may spoil a bucket of its own. So it withstands what the inner
rule withstands of ⌈N/s⌉ rows: the median of 10 buckets of 2 withstands 4 bad rows of 20, not 6 or 9. The
inner rule is told M itself. The runs behind Li et al., "FedCAP", ACSAC 2024, tell it M/s instead, as if bad
rows shared buckets; that is right only for a lucky shuffle, and a rule told too small an M drops too few.
The shuffle changes each round (see `base.draw`).
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
    """The seed of the shuffle."""

    def takes(self, rows: int) -> int:
        """Return what the inner rule takes of as many rows as there are buckets."""
        return min(rows - 1, self.inner.takes(-(-rows // self.size)))

    def withstands(self, rows: int, malicious: int) -> int:
        """Return what the inner rule withstands, if every bad row spoils a bucket."""
        return self.inner.withstands(-(-rows // self.size), malicious)

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the inner rule's aggregate of the buckets' averages."""
        order = torch.randperm(len(rows), generator=draw(self.seed, rows))
        buckets = torch.split(order, self.size)
        shares = rows.new_zeros(len(buckets), len(rows))
        for bucket, members in enumerate(buckets):
            shares[bucket, members.to(rows.device)] = 1 / len(members)
        return self.inner(shares @ rows, malicious=malicious)
