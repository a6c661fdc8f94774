"""The groups of FedCAP's EMNIST experiments: most samples of a client are of the classes of its group.

Client k belongs to group k mod G. A share `dominant` of its samples is of the group's classes; the others are
of all classes in equal numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedcap.data.partitions.base import ClassPools, Partition, even_counts, registry, samples_each, shuffled
from fedcap.errors import InputError


@registry.register("groups")
@dataclass(frozen=True)
class Groups(Partition):
    """Groups of clients, each with most of its samples from the classes of its group."""

    groups: tuple[tuple[int, ...], ...] = ()
    """The dominant classes of each group; groups may overlap."""
    dominant: Annotated[float, Field(ge=0, le=1)] = 0.8
    """The share of a client's samples of its group's classes; the others are of all classes equally."""

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Take samples of its group's classes and of all classes for each client."""
        pools = ClassPools(labels, generator)
        groups = self._checked(len(pools))
        if samples is None:
            return self._divide_all(pools, groups, clients, generator)
        own = round(self.dominant * samples_each(labels, clients, samples))
        classes = list(range(len(pools)))
        wanted: list[dict[int, int]] = []
        for client in range(clients):
            counts = even_counts(own, groups[client % len(groups)], generator)
            for label, count in even_counts(samples - own, classes, generator).items():
                counts[label] = counts.get(label, 0) + count
            wanted.append(counts)
        return pools.take_all(wanted)

    def _checked(self, classes: int) -> list[list[int]]:
        """Return the groups without repeated classes; raise an `InputError` for unknown classes."""
        if not self.groups or not all(self.groups):
            raise InputError(
                "partition 'groups' needs its groups of classes, e.g. [[0, 1], [2, 3]]", code="missing-option"
            )
        for label in {label for group in self.groups for label in group}:
            if not 0 <= label < classes:
                raise InputError(
                    f"partition 'groups' names class {label}; there are {classes} classes",
                    code="unknown-class",
                )
        return [list(dict.fromkeys(group)) for group in self.groups]

    def _divide_all(
        self, pools: ClassPools, groups: Sequence[Sequence[int]], clients: int, generator: torch.Generator
    ) -> list[Tensor]:
        """Divide all samples: clients of a group whose classes have fewer samples get fewer.

        The members of a group divide its samples equally. The rest, of all classes, is divided among all
        clients in proportion to the number that each got from its group.
        """
        of_group, rest = self._split(pools, groups, generator)
        shares: list[Tensor] = [rest[:0]] * clients
        for place, indices in enumerate(of_group):
            members = range(place, clients, len(groups))
            if members:
                shares[place :: len(groups)] = torch.tensor_split(shuffled(indices, generator), len(members))
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
                f"{clients} clients in {len(groups)} groups: some would have no sample; use fewer clients",
                code="too-few-samples",
            )
        return shares

    def _split(
        self, pools: ClassPools, groups: Sequence[Sequence[int]], generator: torch.Generator
    ) -> tuple[list[Tensor], Tensor]:
        """Return the samples of each group, and the shuffled rest of all classes.

        A share `dominant` of each class goes to the groups that have the class, in equal parts.
        """
        of_group: list[list[Tensor]] = [[] for _ in groups]
        common: list[Tensor] = []
        for label in range(len(pools)):
            holders = [parts for parts, group in zip(of_group, groups, strict=True) if label in group]
            dominant = round(self.dominant * pools.left(label))
            common.append(pools.take(label, pools.left(label) - dominant))
            for place, parts in enumerate(holders):
                parts.append(pools.take(label, (dominant + place) // len(holders)))
        return [torch.cat(parts) for parts in of_group], shuffled(torch.cat(common), generator)
