"""The independent and identically distributed partition: all clients draw from the same samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.data.partitions.base import Partition, Shards, registry, samples_each


@registry.register("iid")
@dataclass(frozen=True)
class IID(Partition):
    """Every client has the same number of samples, drawn at random from all."""

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> Shards:
        """Shuffle all samples and split them into parts of equal size."""
        each = samples_each(labels, clients, samples)
        order = torch.randperm(len(labels), generator=generator)
        return Shards(order[: clients * each], torch.arange(clients + 1) * each)
