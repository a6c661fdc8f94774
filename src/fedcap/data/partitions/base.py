"""What every partition is: options, a call that deals samples out to clients, and names for the clients.

If there are too few samples for it, it raises an `InputError` that says how many are missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.registry import Registry


@dataclass(frozen=True)
class Partition(ABC):
    """A way of dealing samples out to clients."""

    @abstractmethod
    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> list[Tensor]:
        """Return each client's sample indices: `samples` per client, or as many as there are if `None`."""

    def bind(self, owners: Tensor | None) -> Partition:
        """Return the partition for data whose owners are these, or `None` if the data does not name any.

        `owners` has an entry per sample. Most partitions do not use it.
        """
        return self

    def client_names(self, shares: Sequence[Tensor], owner_names: Sequence[str]) -> tuple[str, ...]:
        """Return a name for each client, given what each one got: its number, unless the data names it."""
        return tuple(str(client) for client in range(len(shares)))


registry: Registry[Partition] = Registry("partition", Partition, "fedcap.data.partitions")
