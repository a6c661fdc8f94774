"""The natural partition: one client for each user, site or device that the data names as an owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.data.partitions.base import Partition, Shards, capped, registry
from fedcap.errors import InputError

_NO_OWNERS = (
    "partition 'natural' needs data that names the owner of each sample, and this data does not:"
    " use another partition, such as iid or dirichlet"
)


@registry.register("natural")
@dataclass(frozen=True)
class Natural(Partition):
    """Every client has its own samples, as the data says: one per user, site or device."""

    def bind(self, owners: Tensor | None) -> Partition:
        """Return the partition for these owners."""
        if owners is None:
            raise InputError(_NO_OWNERS, code="no-owners")
        return _ByOwner(owners)

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> Sequence[Tensor]:
        """Raise an `InputError`: without owners (see `bind`) there is no natural partition."""
        raise InputError(_NO_OWNERS, code="no-owners")


@dataclass(frozen=True)
class _ByOwner(Partition):
    """The natural partition for given owners."""

    owners: Tensor
    """The owner of each sample, as an index into the data set's `owner_names`."""

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> Sequence[Tensor]:
        """Give each owner its samples, at most `samples`; draw `clients` owners if there are more."""
        owners, sizes = self.owners.unique(return_counts=True)  # type: ignore[no-untyped-call]
        if clients > len(owners):
            raise InputError(
                f"{clients} clients, but the data has {len(owners)} owners:"
                f" {clients - len(owners)} are missing",
                code="too-few-owners",
            )
        shards = Shards(self.owners.argsort(stable=True), torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]))
        if clients < len(owners):
            drawn = torch.randperm(len(owners), generator=generator)[:clients].sort().values
            shards = Shards.of([shards[at] for at in drawn.tolist()])
        return shards if samples is None else capped(shards, samples, generator)

    def client_names(self, shares: Sequence[Tensor], owner_names: Sequence[str]) -> tuple[str, ...]:
        """Return the owners' names."""
        shards = Shards.of(shares)
        return tuple(owner_names[owner] for owner in self.owners[shards.order[shards.offsets[:-1]]].tolist())
