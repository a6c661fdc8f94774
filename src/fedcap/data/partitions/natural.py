"""The natural split: a client for each user, site or device that the data names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedcap.data.partitions.base import Partition, capped, registry
from fedcap.errors import InputError


@registry.register("natural")
@dataclass(frozen=True)
class Natural(Partition):
    """Every client has its own samples, as the data says: one per user, site or device."""

    owners: Any = None
    """The owner of each sample, as a place in the data set's `owner_names`; set by `bind`."""

    def bind(self, owners: Tensor | None) -> Natural:
        """Return the partition for these owners."""
        if owners is None:
            raise InputError(
                "partition 'natural' needs data that says whose each sample is; this one does not:"
                " give another, such as iid or dirichlet"
            )
        return replace(self, owners=owners)

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Give each owner its samples, at most `samples`; of more owners than `clients`, draw so many."""
        there, sizes = self.owners.unique(return_counts=True)
        if clients > len(there):
            raise InputError(
                f"{clients} clients, but the data has {len(there)} owners: {clients - len(there)} are missing"
            )
        chosen = there
        if clients < len(there):
            chosen = there[torch.randperm(len(there), generator=generator)[:clients].sort().values]
        by_owner = dict(
            zip(there.tolist(), torch.split(self.owners.argsort(stable=True), sizes.tolist()), strict=True)
        )
        return capped([by_owner[owner] for owner in chosen.tolist()], samples, generator)

    def client_names(self, shares: Sequence[Tensor], owner_names: Sequence[str]) -> tuple[str, ...]:
        """Return the owners' names."""
        return tuple(owner_names[int(self.owners[share[0]])] for share in shares)
