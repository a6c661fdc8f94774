"""The Dirichlet split (Yurochkin et al., 2019): the shares of a class are drawn from Dirichlet(β).

A small β gives most of a class to few clients; a large one gives everybody about the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedcap.data.partitions.base import Partition, Piles, capped, registry
from fedcap.errors import InputError, plural


@registry.register("dirichlet")
@dataclass(frozen=True)
class Dirichlet(Partition):
    """Every class is spread over the clients by shares drawn from Dirichlet(beta)."""

    beta: Annotated[float, Field(gt=0)] = 0.5
    """The smaller, the more the clients differ."""
    smallest: Annotated[int, Field(ge=1)] = 8
    """Draw again until every client has at least this many samples."""
    tries: Annotated[int, Field(ge=1)] = 1000
    """How often to draw before giving up."""

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Deal each class out by its own draw; no client keeps more than `samples`."""
        draw = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
        piles = Piles(labels, generator)
        counts = self._counts([piles.left(label) for label in range(len(piles))], clients, draw)
        dealt = [
            torch.cat([piles.deal(label, int(counts[label, k])) for label in range(len(piles))])
            for k in range(clients)
        ]
        return capped(dealt, samples, generator)

    def _counts(self, sizes: list[int], clients: int, draw: np.random.Generator) -> np.ndarray:
        """Return how many samples of each class each client gets, classes × clients."""
        for _ in range(self.tries):
            shares = draw.dirichlet([self.beta] * clients, size=len(sizes))
            ends = (shares.cumsum(axis=1) * np.array(sizes)[:, None]).round().astype(int)
            counts: np.ndarray = np.diff(ends, axis=1, prepend=0)
            if counts.sum(axis=0).min() >= self.smallest:
                return counts
        raise InputError(
            f"no Dirichlet({self.beta:g}) split of {sum(sizes)} samples gave each of {clients} clients"
            f" {plural(self.smallest, 'sample')}: use a larger beta, or a lower smallest"
        )
