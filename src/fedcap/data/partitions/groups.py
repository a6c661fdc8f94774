"""Groups of clients, as in FedCAP's EMNIST set-up: most of a client's samples are of its group's classes.

Client k belongs to group k mod G. A share `dominant` of its samples is of the group's classes, the rest is
of all classes equally.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedcap.data.partitions.base import Partition, Piles, registry, samples_each, shuffled, spread
from fedcap.errors import InputError


@registry.register("groups")
@dataclass(frozen=True)
class Groups(Partition):
    """Groups of clients, each with most of its samples from the group's own classes."""

    groups: tuple[tuple[int, ...], ...] = ()
    """The dominant classes of each group; groups may overlap."""
    dominant: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Share of a client's samples from its group's classes; the rest is from all classes equally."""

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Deal to each client from its group's classes and from all; without `samples`, deal everything."""
        piles = Piles(labels, generator)
        groups = self._checked(len(piles))
        if samples is None:
            return self._everything(piles, groups, clients, generator)
        own = round(self.dominant * samples_each(labels, clients, samples))
        everything = list(range(len(piles)))
        wanted: list[dict[int, int]] = []
        for client in range(clients):
            wants = spread(own, groups[client % len(groups)], generator)
            for label, count in spread(samples - own, everything, generator).items():
                wants[label] = wants.get(label, 0) + count
            wanted.append(wants)
        return piles.deal_out(wanted)

    def _checked(self, classes: int) -> list[list[int]]:
        """Return the groups without repeated classes; refuse classes that do not exist."""
        if not self.groups or not all(self.groups):
            raise InputError("partition 'groups' needs its groups of classes, e.g. [[0, 1], [2, 3]]")
        for label in {label for group in self.groups for label in group}:
            if not 0 <= label < classes:
                raise InputError(f"partition 'groups' names class {label}; there are {classes} classes")
        return [list(dict.fromkeys(group)) for group in self.groups]

    def _everything(
        self, piles: Piles, groups: Sequence[Sequence[int]], clients: int, generator: torch.Generator
    ) -> list[Tensor]:
        """Deal out all samples: clients of a group whose classes have fewer samples get fewer.

        The members of a group share its pool equally. The rest, of all classes, is dealt to all clients
        in proportion to what each got from its pool.
        """
        pools, rest = self._pools(piles, groups, generator)
        shares: list[Tensor] = [rest[:0]] * clients
        for place, pool in enumerate(pools):
            members = range(place, clients, len(groups))
            if members:
                shares[place :: len(groups)] = torch.tensor_split(shuffled(pool, generator), len(members))
        more = [
            len(share) * (1 - self.dominant) / self.dominant if self.dominant else len(rest) / clients
            for share in shares
        ]
        ends = np.cumsum(more)
        starts = [0, *ends[:-1].round().astype(int).tolist()]
        shares = [
            torch.cat([share, rest[start : round(end)]])
            for share, start, end in zip(shares, starts, ends, strict=True)
        ]
        if not all(len(share) for share in shares):
            raise InputError(
                f"{clients} clients in {len(groups)} groups: some would have no sample at all;"
                " use fewer clients"
            )
        return shares

    def _pools(
        self, piles: Piles, groups: Sequence[Sequence[int]], generator: torch.Generator
    ) -> tuple[list[Tensor], Tensor]:
        """Return each group's pool of samples, and the shuffled rest of all classes.

        A share `dominant` of each class goes to the groups that have the class, in equal parts.
        """
        pools: list[list[Tensor]] = [[] for _ in groups]
        common: list[Tensor] = []
        for label in range(len(piles)):
            holders = [pool for pool, group in zip(pools, groups, strict=True) if label in group]
            dominant = round(self.dominant * piles.left(label))
            common.append(piles.deal(label, piles.left(label) - dominant))
            for place, pool in enumerate(holders):
                pool.append(piles.deal(label, (dominant + place) // len(holders)))
        return [torch.cat(pool) for pool in pools], shuffled(torch.cat(common), generator)
