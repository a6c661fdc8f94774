"""The Dirichlet partition (Yurochkin et al., 2019): shares of each class are drawn from Dirichlet(β).

A small β gives most samples of a class to few clients; a large β gives each client about the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedcap.data.partitions.base import ClassPools, Partition, capped, registry
from fedcap.errors import InputError, plural


@registry.register("dirichlet")
@dataclass(frozen=True)
class Dirichlet(Partition):
    """Every class is divided among the clients by shares drawn from Dirichlet(beta)."""

    beta: Annotated[float, Field(gt=0)] = 0.5
    """The smaller, the more the clients differ."""
    smallest: Annotated[int, Field(ge=1)] = 8
    """The smallest number of samples of a client; draws with fewer are repeated."""
    tries: Annotated[int, Field(ge=1)] = 1000
    """The largest number of draws."""

    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Divide each class by a draw of its own; reduce each client to at most `samples`."""
        draw = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
        pools = ClassPools(labels, generator)
        counts = self._counts([pools.left(label) for label in range(len(pools))], clients, draw)
        shares = [
            torch.cat([pools.take(label, int(counts[label, k])) for label in range(len(pools))])
            for k in range(clients)
        ]
        return capped(shares, samples, generator)

    def _counts(self, sizes: list[int], clients: int, draw: np.random.Generator) -> np.ndarray:
        """Return the number of samples of each class for each client, classes × clients."""
        for _ in range(self.tries):
            shares = draw.dirichlet([self.beta] * clients, size=len(sizes))
            ends = (shares.cumsum(axis=1) * np.array(sizes)[:, None]).round().astype(int)
            counts: np.ndarray = np.diff(ends, axis=1, prepend=0)
            if counts.sum(axis=0).min() >= self.smallest:
                return counts
        raise InputError(
            f"no Dirichlet({self.beta:g}) split of {sum(sizes)} samples gave each of {clients} clients"
            f" {plural(self.smallest, 'sample')}: use a larger beta, or a lower smallest",
            code="too-few-samples",
        )
