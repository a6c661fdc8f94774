"""The base class of partitions, and `ClassPools`, from which several partitions take samples class by class.

A partition is a frozen dataclass of options that is called with the labels and returns the sample indices of
each client. If there are too few samples, it raises an `InputError` with the number of missing samples.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fedcap.errors import InputError, plural
from fedcap.names import NumberedNames
from fedcap.registry import Registry


@dataclass(frozen=True, eq=False)
class Shards(Sequence[Tensor]):
    """A partition as two tensors: client k has the samples `order[offsets[k] : offsets[k + 1]]`."""

    order: Tensor
    """The indices of the samples, one client after the other."""
    offsets: Tensor
    """K+1."""

    @classmethod
    def of(cls, shares: Sequence[Tensor]) -> Shards:
        """Return the partition with these sample indices for each client."""
        if isinstance(shares, Shards):
            return shares
        sizes = torch.tensor([0, *map(len, shares)])
        return cls(torch.cat([*shares, torch.empty(0, dtype=torch.long)]), sizes.cumsum(0))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: Any) -> Any:
        at = range(len(self))[client]
        if isinstance(at, range):
            return [self[each] for each in at]
        return self.order[int(self.offsets[at]) : int(self.offsets[at + 1])]

    @property
    def sizes(self) -> Tensor:
        """The number of samples of each client, K."""
        return self.offsets.diff()

    def digest(self) -> str:
        """Return the hash that `tensors_digest` returns for the clients' tensors of indices."""
        sha, content = hashlib.sha256(), self.order.contiguous().numpy().view("uint8").data
        for start, stop in pairwise(self.offsets.tolist()):
            sha.update(b"%s [%d]" % (str(self.order.dtype).encode(), stop - start))
            sha.update(content[start * self.order.itemsize : stop * self.order.itemsize])
        return sha.hexdigest()


@dataclass(frozen=True)
class Partition(ABC):
    """A way to divide samples among clients."""

    @abstractmethod
    def __call__(
        self, labels: Tensor, clients: int, samples: int | None, generator: torch.Generator
    ) -> Sequence[Tensor]:
        """Return each client's sample indices: `samples` per client, or all samples if it is `None`."""

    def bind(self, owners: Tensor | None) -> Partition:
        """Return the partition for data with these owners; most partitions do not use them.

        `owners` has an entry per sample, or is `None` if the data does not name owners.
        """
        return self

    def client_names(self, shares: Sequence[Tensor], owner_names: Sequence[str]) -> Sequence[str]:
        """Return a name for each client, given its samples. By default it is the client's number."""
        return NumberedNames(len(shares))


registry: Registry[Partition] = Registry("partition", Partition, "fedcap.data.partitions")


class ClassPools:
    """The samples of each class in random order. Samples that are taken leave their pool."""

    def __init__(self, labels: Tensor, generator: torch.Generator) -> None:
        self._pools = [
            shuffled((labels == label).nonzero().flatten(), generator)
            for label in range(int(labels.max()) + 1)
        ]

    def __len__(self) -> int:
        return len(self._pools)

    def left(self, label: int) -> int:
        """Return the number of samples of a class that are left."""
        return len(self._pools[label])

    def take(self, label: int, count: int) -> Tensor:
        """Take `count` samples of a class, or all that are left if there are fewer."""
        pool = self._pools[label]
        self._pools[label] = pool[count:]
        return pool[:count]

    def take_all(self, wanted: Sequence[Mapping[int, int]]) -> list[Tensor]:
        """Take the wanted number of samples of each class for each client.

        If there are too few, raise an `InputError` with the number of missing samples.
        """
        total: Counter[int] = Counter()
        for counts in wanted:
            total.update(counts)
        missing = {label: count - self.left(label) for label, count in total.items()}
        worst = max(missing, key=missing.__getitem__)
        if missing[worst] > 0:
            short = [count for count in missing.values() if count > 0]
            others = f" ({sum(short)} are missing over {len(short)} classes)" if len(short) > 1 else ""
            raise InputError(
                f"class {worst} has {plural(missing[worst], 'sample')} too few for this partition{others}:"
                " use fewer clients or fewer samples per client",
                code="too-few-samples",
            )
        return [torch.cat([self.take(label, count) for label, count in counts.items()]) for counts in wanted]


def shuffled(indices: Tensor, generator: torch.Generator) -> Tensor:
    """Return indices in random order."""
    return indices[torch.randperm(len(indices), generator=generator)]


def capped(shares: Sequence[Tensor], samples: int | None, generator: torch.Generator) -> list[Tensor]:
    """Return the shares, each reduced to at most `samples` at random; unchanged if `samples` is `None`."""
    if samples is None:
        return list(shares)
    return [shuffled(share, generator)[:samples] for share in shares]


def even_counts(total: int, labels: Sequence[int], generator: torch.Generator) -> dict[int, int]:
    """Return a number of samples per class with the sum `total`; the numbers differ by at most one.

    If the total does not divide evenly, the classes with one more sample are drawn at random.
    """
    order = torch.randperm(len(labels), generator=generator).tolist()
    each, rest = divmod(total, len(labels))
    return {labels[at]: each + (place < rest) for place, at in enumerate(order)}


def samples_each(labels: Tensor, clients: int, samples: int | None) -> int:
    """Return the number of samples per client: `samples`, or an equal part of all samples if it is `None`."""
    each = len(labels) // clients if samples is None else samples
    if each * clients > len(labels) or each == 0:
        need = max(1, each)
        raise InputError(
            f"{plural(clients, 'client')} with {plural(need, 'sample')} each need {need * clients} samples,"
            f" and there are {len(labels)}: use fewer clients or fewer samples per client",
            code="too-few-samples",
        )
    return each
