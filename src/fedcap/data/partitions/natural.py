"""The natural partition: one client for each user, site or device that the data names as an owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.data.partitions.base import Partition, capped, registry
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
            raise InputError(_NO_OWNERS)
        return _ByOwner(owners)

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Raise an `InputError`: without owners (see `bind`) there is no natural partition."""
        raise InputError(_NO_OWNERS)


@dataclass(frozen=True)
class _ByOwner(Partition):
    """The natural partition for given owners."""

    owners: Tensor
    """The owner of each sample, as an index into the data set's `owner_names`."""

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Give each owner its samples, at most `samples`; draw `clients` owners if there are more."""
        owners, sizes = self.owners.unique(return_counts=True)  # type: ignore[no-untyped-call]
        if clients > len(owners):
            raise InputError(
                f"{clients} clients, but the data has {len(owners)} owners:"
                f" {clients - len(owners)} are missing"
            )
        chosen = owners
        if clients < len(owners):
            chosen = owners[torch.randperm(len(owners), generator=generator)[:clients].sort().values]
        samples_of = dict(
            zip(owners.tolist(), torch.split(self.owners.argsort(stable=True), sizes.tolist()), strict=True)
        )
        return capped([samples_of[owner] for owner in chosen.tolist()], samples, generator)

    def client_names(self, shares: Sequence[Tensor], owner_names: Sequence[str]) -> tuple[str, ...]:
        """Return the owners' names."""
        return tuple(owner_names[int(self.owners[share[0]])] for share in shares)
