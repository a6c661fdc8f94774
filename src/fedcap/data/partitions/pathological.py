"""The pathological partition (McMahan et al., 2017): a client has samples of a few classes only.

The classes are drawn at random, or assigned in blocks of clients with the same classes. With N clients, C
classes and k classes per client, a block is the next ⌈N·k/C⌉ clients, and each block has the next k classes:
20 clients with 2 of 10 classes are five blocks of four, clients 0–3 with classes 0 and 1, clients 4–7 with 2
and 3, and so on. If the counts do not divide, the last block is smaller, and the first class follows the last
one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedcap.data.partitions.base import ClassPools, Partition, even_counts, registry
from fedcap.errors import InputError, plural


@registry.register("pathological")
@dataclass(frozen=True)
class Pathological(Partition):
    """Every client has samples of a few classes, with equal numbers of each (two classes by default)."""

    classes_per_client: Annotated[int, Field(ge=1)] = 2
    """The number of classes of a client."""
    sharing: Literal["blocks", "random"] = "random"
    """Whether blocks of clients have the same classes, or each client's classes are drawn at random."""

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Choose each client's classes and take samples; by default the largest number that all can have."""
        pools = ClassPools(labels, generator)
        classes = self._assign(len(pools), clients, generator)
        if samples is None:
            holders = [sum(label in own for own in classes) for label in range(len(pools))]
            samples = self.classes_per_client * min(
                pools.left(label) // count for label, count in enumerate(holders) if count
            )
        if samples < self.classes_per_client:
            raise InputError(
                f"{plural(clients, 'client')} with {plural(self.classes_per_client, 'class')} each get"
                f" {plural(samples, 'sample')} each:"
                f" {self.classes_per_client - samples} too few for one of each class",
                code="too-few-samples",
            )
        return pools.take_all([even_counts(samples, own, generator) for own in classes])

    def _assign(self, classes: int, clients: int, generator: torch.Generator) -> list[list[int]]:
        """Return each client's classes."""
        if self.classes_per_client > classes:
            raise InputError(
                f"{self.classes_per_client} classes per client, but there are only {classes}",
                code="unknown-class",
            )
        if self.sharing == "blocks":
            return self._blocks(classes, clients)
        return self._random(classes, clients, generator)

    def _blocks(self, classes: int, clients: int) -> list[list[int]]:
        """Assign the next classes to each block of clients."""
        size = -(-clients * self.classes_per_client // classes)
        starts = [client // size * self.classes_per_client for client in range(clients)]
        return [[(start + at) % classes for at in range(self.classes_per_client)] for start in starts]

    def _random(self, classes: int, clients: int, generator: torch.Generator) -> list[list[int]]:
        """Assign to each client, at random, classes among those that the fewest clients have so far.

        The numbers of clients with any two classes differ by at most one.
        """
        holders = torch.zeros(classes)
        assigned = []
        for _ in range(clients):
            chance = torch.rand(classes, generator=generator)
            own = torch.argsort(holders + chance)[: self.classes_per_client]
            holders[own] += 1
            assigned.append(sorted(own.tolist()))
        return assigned
