"""Samples sorted by class into shuffled piles, and small helpers that several partitions share.

What every partition is: options, a call that deals samples out to clients, and names for the clients.

If there are too few samples for it, it raises an `InputError` that says how many are missing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcap.errors import InputError, plural
from fedcap.registry import Registry


class Piles:
    """The samples of each class in random order; a sample that was dealt is no longer in its pile."""

    def __init__(self, labels: Tensor, generator: torch.Generator) -> None:
        self._piles = [
            shuffled((labels == label).nonzero().flatten(), generator)
            for label in range(int(labels.max()) + 1)
        ]

    def __len__(self) -> int:
        return len(self._piles)

    def left(self, label: int) -> int:
        """Return how many samples of a class are left."""
        return len(self._piles[label])

    def deal(self, label: int, count: int) -> Tensor:
        """Take samples of a class, or all that are left if there are fewer."""
        pile = self._piles[label]
        self._piles[label] = pile[count:]
        return pile[:count]

    def deal_out(self, wanted: Sequence[Mapping[int, int]]) -> list[Tensor]:
        """Give each client as many samples of each class as it wants, or say how many are missing."""
        total: Counter[int] = Counter()
        for wants in wanted:
            total.update(wants)
        missing = {label: count - self.left(label) for label, count in total.items()}
        worst = max(missing, key=missing.__getitem__)
        if missing[worst] > 0:
            short = [count for count in missing.values() if count > 0]
            others = f" ({sum(short)} are missing over {len(short)} classes)" if len(short) > 1 else ""
            raise InputError(
                f"class {worst} has {plural(missing[worst], 'sample')} too few for this partition{others}:"
                " use fewer clients or fewer samples per client"
            )
        return [torch.cat([self.deal(label, count) for label, count in wants.items()]) for wants in wanted]


def shuffled(indices: Tensor, generator: torch.Generator) -> Tensor:
    """Return indices in random order."""
    return indices[torch.randperm(len(indices), generator=generator)]


def capped(shares: Sequence[Tensor], samples: int | None, generator: torch.Generator) -> list[Tensor]:
    """Return the shares, each cut to at most `samples` at random; uncut if `samples` is `None`."""
    if samples is None:
        return list(shares)
    return [shuffled(share, generator)[:samples] for share in shares]


def spread(total: int, labels: Sequence[int], generator: torch.Generator) -> dict[int, int]:
    """Return how many samples of each class make up a total; counts differ by at most one.

    If the total does not divide evenly, the classes that get one more are drawn at random.
    """
    order = torch.randperm(len(labels), generator=generator).tolist()
    each, rest = divmod(total, len(labels))
    return {labels[at]: each + (place < rest) for place, at in enumerate(order)}


def samples_each(labels: Tensor, clients: int, samples: int | None) -> int:
    """Return how many samples a client gets: `samples`, or an equal part of all; refuse too many or none."""
    each = len(labels) // clients if samples is None else samples
    if each * clients > len(labels) or each == 0:
        need = max(1, each)
        raise InputError(
            f"{plural(clients, 'client')} with {plural(need, 'sample')} each need {need * clients} samples,"
            f" and there are {len(labels)}: use fewer clients or fewer samples per client"
        )
    return each


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
