"""What a data set is, and how it becomes the data of many clients.

A `Source` (digits, …) loads a `Dataset`: samples and labels. A partition says which samples each client
has. `federate` deals them out and splits each client's share into a training and a test part.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedcap.data.partitions import Partition
from fedcap.randomness import derive
from fedcap.registry import InputError, Registry
from fedcap.samples import Samples


@dataclass(frozen=True)
class Dataset:
    """Samples of one task, nobody's yet."""

    samples: Samples
    class_names: tuple[str, ...]

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    def digest(self) -> str:
        """Return a hash of every sample and label."""
        return digest(self.samples.x, self.samples.y)


@dataclass(frozen=True)
class FederatedData:
    """The clients' data: client k trains on `train[k]` and is tested on `test[k]`."""

    train: Sequence[Samples]
    test: Sequence[Samples]
    classes: int
    data_hash: str
    partition_hash: str
    root: Samples | None = None
    """Samples that no client has, for a server that needs some."""

    def __len__(self) -> int:
        return len(self.train)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.train[0].x.shape[1:])


@dataclass(frozen=True)
class Source(ABC):
    """A data set that can be loaded, and how it is dealt out unless the user says otherwise."""

    model: ClassVar[str]
    """The network made for it."""
    groups: ClassVar[Sequence[Sequence[int]]] = ()
    """The classes of each group, for the partition of that name."""
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings of an experiment on this data, unless the user gives others; `methods` holds those
    of each method by name."""

    partition: str | dict[str, Any] = "iid"
    clients: int = 20
    samples: int | None = None
    """Samples per client, training and test together; as many as there are if not given."""
    train_share: float = 0.75
    """Share of a client's samples that it trains on."""

    @abstractmethod
    def load(self) -> Dataset:
        """Return all samples."""


registry: Registry[Source] = Registry("data set", Source, "fedcap.data")


def digest(*tensors: Tensor) -> str:
    """Return a hash of the tensors' shapes and contents."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
        sha.update(tensor.contiguous().numpy().tobytes())
    return sha.hexdigest()


def root_set(labels: Tensor, shares: Sequence[Tensor], count: int, seed: int) -> Tensor:
    """Return indices of samples that no client has, as many of each class as it goes."""
    free = torch.ones(len(labels), dtype=torch.bool)
    for share in shares:
        free[share] = False
    left = free.nonzero().flatten()
    if len(left) < count:
        raise InputError(
            f"the server's root set needs {count} samples that no client has, {len(left)} are left:"
            " use fewer clients or fewer samples per client"
        )
    left = left[torch.randperm(len(left), generator=derive(seed, "root"))]
    before = functional.one_hot(labels[left]).cumsum(dim=0)  # of each class, up to and with this sample
    place = before.gather(1, labels[left][:, None]).flatten()
    return left[place.argsort(stable=True)[:count]]


def federate(
    dataset: Dataset,
    partition: Partition,
    clients: int,
    samples: int | None,
    train_share: float,
    seed: int,
    root: int = 0,
) -> FederatedData:
    """Deal a data set out to clients and split each one's part; a function of the seed alone.

    With `root`, so many samples that no client has are set aside for the server.
    """
    shares = partition(dataset.samples.y, clients, samples, derive(seed, "partition"))
    train: list[Samples] = []
    test: list[Samples] = []
    for client, share in enumerate(shares):
        order = share[torch.randperm(len(share), generator=derive(seed, "split", client))]
        count = round(train_share * len(order))
        if not 0 < count < len(order):
            raise InputError(
                f"client {client} has {len(order)} samples: too few for a training and a test part"
                f" (train_share {train_share:g})"
            )
        for part, where in ((train, order[:count]), (test, order[count:])):
            part.append(Samples(dataset.samples.x[where], dataset.samples.y[where]))
    aside = None
    if root:
        where = root_set(dataset.samples.y, shares, root, seed)
        aside = Samples(dataset.samples.x[where], dataset.samples.y[where])
    return FederatedData(train, test, dataset.classes, dataset.digest(), digest(*shares), aside)
