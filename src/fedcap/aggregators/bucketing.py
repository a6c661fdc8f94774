"""Bucketing: shuffle the updates, average them in buckets of s, and apply another rule to the averages.

Reference: Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR
2022. The averages differ less than the updates do. This helps rules that would reject honest clients with
unusual data. Each malicious row may spoil one bucket, so the rule tolerates what the inner rule tolerates of
⌈N/s⌉ rows: the median of 10 buckets of 2 tolerates 4 malicious rows of 20, not 6 or 9. The inner rule gets M
itself. The runs behind Li et al., "FedCAP", ACSAC 2024, pass M/s instead, as if malicious rows shared
buckets. That holds only for a lucky shuffle, and with too small an M the inner rule drops too few rows. The
shuffle changes each round (see `base.generator_for`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.aggregators.base import Wrapper, generator_for, registry


@registry.register("bucketing")
@dataclass(frozen=True)
class Bucketing(Wrapper):
    """Another rule on the averages of random buckets of updates."""

    size: Annotated[int, Field(ge=1)] = 2
    """s: the number of updates in a bucket; the last bucket may have fewer."""
    seed: int = 0
    """The seed of the shuffle."""

    def max_malicious(self, rows: int) -> int:
        """Return the largest M of the inner rule for one row per bucket."""
        return min(rows - 1, self.inner.max_malicious(-(-rows // self.size)))

    def tolerates(self, rows: int, malicious: int) -> int:
        """Return what the inner rule tolerates if each malicious row spoils one bucket."""
        return self.inner.tolerates(-(-rows // self.size), malicious)

    def combine(self, rows: Tensor, malicious: int) -> Tensor:
        """Return the inner rule's aggregate of the buckets' averages."""
        order = torch.randperm(len(rows), generator=generator_for(self.seed, rows))
        buckets = torch.split(order, self.size)
        weights = rows.new_zeros(len(buckets), len(rows))
        for bucket, members in enumerate(buckets):
            weights[bucket, members.to(rows.device)] = 1 / len(members)
        return self.inner(weights @ rows, malicious=malicious)
