"""The pathological split (McMahan et al., 2017): a client has samples of a few classes only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedcap.data.partitions.base import Partition, registry
from fedcap.data.partitions.piles import Piles, spread
from fedcap.registry import InputError
from fedcap.words import plural


@registry.register("pathological")
@dataclass(frozen=True)
class Pathological(Partition):
    """Every client has samples of a few classes only, equally many of each (two classes by default)."""

    classes_per_client: Annotated[int, Field(ge=1)] = 2
    """How many classes a client has samples of."""

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
        """Give each client, at random, classes among those that the fewest clients have so far.

        So any two classes differ by at most one in how many clients have them.
        """
        if self.classes_per_client > classes:
            raise InputError(f"{self.classes_per_client} classes per client, but there are only {classes}")
        given = torch.zeros(classes)
        held = []
        for _ in range(clients):
            chance = torch.rand(classes, generator=generator)
            own = torch.argsort(given + chance)[: self.classes_per_client]
            given[own] += 1
            held.append(sorted(own.tolist()))
        return held
