"""The pathological split (McMahan et al., 2017): a client has samples of a few classes only.

Which ones is drawn at random, or dealt in blocks of clients alike. With N clients, C classes and k classes
per client, a block is the next ⌈N·k/C⌉ clients, and each block takes the next k classes: 20 clients with 2 of
10 classes are five blocks of four, clients 0–3 with classes 0 and 1, clients 4–7 with 2 and 3, and so on. If
the counts do not divide, the last block is smaller, and after the last class comes the first one again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedcap.data.partitions.base import Partition, Piles, registry, spread
from fedcap.errors import InputError, plural


@registry.register("pathological")
@dataclass(frozen=True)
class Pathological(Partition):
    """Every client has samples of a few classes only, equally many of each (two classes by default)."""

    classes_per_client: Annotated[int, Field(ge=1)] = 2
    """How many classes a client has samples of."""
    sharing: Literal["blocks", "random"] = "random"
    """Whether clients come in blocks with the same classes, or each one's classes are drawn at random."""

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Choose each client's classes, then deal; without `samples`, as many as every client can have."""
        piles = Piles(labels, generator)
        held = self._assign(len(piles), clients, generator)
        if samples is None:
            holders = [sum(label in own for own in held) for label in range(len(piles))]
            samples = self.classes_per_client * min(
                piles.left(label) // count for label, count in enumerate(holders) if count
            )
        if samples < self.classes_per_client:
            raise InputError(
                f"{plural(clients, 'client')} with {plural(self.classes_per_client, 'class')} each get"
                f" {plural(samples, 'sample')} each:"
                f" {self.classes_per_client - samples} too few for one of each class"
            )
        return piles.deal_out([spread(samples, own, generator) for own in held])

    def _assign(self, classes: int, clients: int, generator: torch.Generator) -> list[list[int]]:
        """Return each client's classes."""
        if self.classes_per_client > classes:
            raise InputError(f"{self.classes_per_client} classes per client, but there are only {classes}")
        if self.sharing == "blocks":
            return self._blocks(classes, clients)
        return self._random(classes, clients, generator)

    def _blocks(self, classes: int, clients: int) -> list[list[int]]:
        """Give each block of clients the next classes."""
        size = -(-clients * self.classes_per_client // classes)
        starts = [client // size * self.classes_per_client for client in range(clients)]
        return [[(start + at) % classes for at in range(self.classes_per_client)] for start in starts]

    def _random(self, classes: int, clients: int, generator: torch.Generator) -> list[list[int]]:
        """Give each client, at random, classes among those that the fewest clients have so far.

        So any two classes differ by at most one in how many clients have them.
        """
        given = torch.zeros(classes)
        held = []
        for _ in range(clients):
            chance = torch.rand(classes, generator=generator)
            own = torch.argsort(given + chance)[: self.classes_per_client]
            given[own] += 1
            held.append(sorted(own.tolist()))
        return held
