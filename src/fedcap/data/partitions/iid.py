"""Independent and identically distributed: every client draws from the same samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.data.partitions.base import Partition, registry, samples_each


@registry.register("iid")
@dataclass(frozen=True)
class IID(Partition):
    """Every client has equally many samples, drawn at random from all."""

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Shuffle all samples and cut them into parts of equal size."""
        each = samples_each(labels, clients, samples)
        order = torch.randperm(len(labels), generator=generator)
        return list(torch.split(order[: clients * each], each))
