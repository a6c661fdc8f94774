"""From a data set to the data of clients: partition it, split each client's part, draw a root set.

All of it is a function of the seed, so the samples of a client are made when they are needed. The partition,
each client's split and the root set are drawn by separate generators: the clients of a run with a root set
are those of a run without one, unless they leave too few samples for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedcap.data import partitions
from fedcap.data.base import ClientSamples, Dataset, FederatedData, Source
from fedcap.data.partitions import ClassPools, Partition, Shards
from fedcap.errors import InputError, plural
from fedcap.names import NumberedNames
from fedcap.registry import as_table
from fedcap.rng import derive

_CLIENTS = 20
"""The number of clients if neither the user nor the data gives one."""


def federate_source(
    source: Source, dataset: Dataset, seed: int, root: int = 0, holdout: float | None = None
) -> FederatedData:
    """Return the data of a source's clients in the form that they train on.

    With `holdout`, this share of each client's training samples replaces its test samples.
    """
    samples = None if source.samples == "all" else source.samples
    partition = partitions.registry.build(partition_table(source))
    share = source.train_share
    return source.prepared(federate(dataset, partition, source.clients, samples, share, seed, root, holdout))


def partition_table(source: Source) -> dict[str, Any]:
    """Return the partition's name and options. Options without a name are for the default partition."""
    chosen, default = source.partition, source.default_partition()
    if isinstance(chosen, Mapping) and "name" not in chosen and default is not None:
        table = {**as_table(default, "partition"), **chosen}
    else:
        table = as_table(chosen, "partition")
    name = partitions.registry.resolve(table.pop("name"))
    return {"name": name, **(source.groups if name == "groups" else {}), **table}


def federate(
    dataset: Dataset,
    partition: Partition,
    clients: int | None,
    samples: int | None,
    train_share: float,
    seed: int,
    root: int = 0,
    holdout: float | None = None,
) -> FederatedData:
    """Partition a data set among clients and split each client's part into training and test.

    The server's root set has `root` samples that no client has. If the clients own too many samples, as in
    data of users who recorded their own, it is taken from the clients' training parts. With `holdout`, this
    share of each client's training samples replaces its test samples; it is at least one sample.
    """
    if clients is None:
        clients = len(dataset.owner_names) or _CLIENTS
    partition = partition.bind(dataset.owners)
    shards = Shards.of(partition(dataset.samples.y, clients, samples, derive(seed, "partition")))
    names = _distinct(partition.client_names(shards, dataset.owner_names))
    plain = replace(dataset, owners=None, owner_names=(), notes=())
    drawn = DrawnClients(plain, shards, seed, train_share)
    train, test = drawn.sizes()
    root_set = None
    if root:
        root_set = draw_root(dataset.samples.y, shards.order, drawn.training_parts, root, seed)
        if bool(torch.isin(root_set, shards.order).any()):
            drawn = replace(drawn, root=root_set)
            train = torch.tensor([len(part) for part in drawn.training_parts()])
    _refuse_empty(names, train, test, train_share, dataset.test is not None)
    if holdout is not None:
        test = _held_out(holdout, train)
        _refuse_too_few(names, train, test, holdout)
        drawn, train = replace(drawn, holdout=holdout), train - test
    return FederatedData(
        names,
        drawn,
        dataset.classes,
        dataset.digest(),
        shards.digest(),
        dataset.class_names,
        None if root_set is None else dataset.take(root_set),
        dataset.pixels,
        sizes=(train, test),
        features=dataset.features,
        levels=dataset.levels,
    )


@dataclass(frozen=True)
class DrawnClients(Sequence[ClientSamples]):
    """The samples of each client of a partition; the split of a client is drawn when it is needed."""

    dataset: Dataset
    shards: Shards
    seed: int
    train_share: float
    root: Tensor | None = None
    """Samples of the server's root set, which no client trains on."""
    holdout: float | None = None
    """The share of the training samples that replaces the test samples."""

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, client: Any) -> Any:
        train, test = self._split(range(len(self))[client])
        if self.holdout is not None:
            held = int(_held_out(self.holdout, torch.tensor(len(train))))
            train, test = train[:-held], train[-held:]
        return self.dataset.take(train), self.dataset.take(test)

    def _split(self, client: int) -> tuple[Tensor, Tensor]:
        """Return a client's training and test samples: by the data's own split, or by share."""
        share = self.shards[client]
        order = share[torch.randperm(len(share), generator=derive(self.seed, "split", client))]
        if self.dataset.test is not None:
            tests = self.dataset.test[order]
            train, test = order[~tests], order[tests]
        else:
            count = round(self.train_share * len(order))
            train, test = order[:count], order[count:]
        return train if self.root is None else train[~torch.isin(train, self.root)], test

    def training_parts(self) -> Iterator[Tensor]:
        """Yield the indices of each client's training samples."""
        return (self._split(client)[0] for client in range(len(self)))

    def sizes(self) -> tuple[Tensor, Tensor]:
        """Return the numbers of training and of test samples, K each, without a root set or a holdout."""
        sizes = self.shards.sizes
        if self.dataset.test is None:
            train = (self.train_share * sizes.double()).round().long()
            return train, sizes - train
        tests = self.dataset.test[self.shards.order].cumsum(0)
        test = torch.cat([tests.new_zeros(1), tests])[self.shards.offsets].diff()
        return sizes - test, test


def _held_out(share: float, train: Tensor) -> Tensor:
    """Return how many of this number of training samples are held out: a share, but at least one."""
    return (share * train.double()).round().long().clamp_min(1)


def _distinct(names: Sequence[str]) -> Sequence[str]:
    """Return the clients' names; raise an `InputError` if two clients have the same name."""
    if isinstance(names, NumberedNames):
        return names
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(
            f"two clients are called {repeated[0]!r}: give each owner in the data another name",
            code="name-taken",
        )
    return names


def _refuse_empty(
    names: Sequence[str], train: Tensor, test: Tensor, train_share: float, has_split: bool
) -> None:
    """Raise an `InputError` if a client has no training or no test part; it names the first one."""
    short = ((train == 0) | (test == 0)).nonzero().flatten().tolist()
    if not short:
        return
    count = int(train[short[0]] + test[short[0]])
    why = (
        "the data's own split leaves it without a training or a test part"
        if has_split
        else f"too few for a training and a test part (train_share {train_share:g})"
    )
    others = f"; the same holds for {len(short) - 1} more" if len(short) > 1 else ""
    raise InputError(
        f"client {names[short[0]]!r} has {count} sample{'s' * (count != 1)}: {why}{others};"
        " give it more samples, leave it out of the data, or use fewer clients (dataset.clients)",
        code="too-few-samples",
        field=names[short[0]],
    )


def _refuse_too_few(names: Sequence[str], train: Tensor, held: Tensor, share: float) -> None:
    """Raise an `InputError` if a client has no training samples left; it names the first one."""
    for client in (held >= train).nonzero().flatten().tolist():
        raise InputError(
            f"client {names[client]!r} has {plural(int(train[client]), 'training sample')}: too few to hold"
            f" out {share:g} of them; give it more samples, or set holdout to less",
            code="too-few-samples",
            field=names[client],
        )


def draw_root(
    labels: Tensor, taken: Tensor, training_parts: Callable[[], Iterable[Tensor]], count: int, seed: int
) -> Tensor:
    """Draw samples that no client has, with equal numbers of each class as far as there are enough.

    `taken` are the samples of all clients. If they leave too few, draw from the clients' training parts as
    well.
    """
    left = torch.ones(len(labels), dtype=torch.bool)
    left[taken] = False
    unowned = int(left.sum())
    if unowned < count:
        for train in training_parts():
            left[train] = True
    if int(left.sum()) - unowned < 2 * (count - unowned):
        raise InputError(
            f"a root set of {count} samples needs samples that no client has, and the clients leave"
            f" {unowned}, too few even with half of their training samples;"
            " use fewer samples per client (dataset.samples)",
            code="too-few-samples",
        )
    generator = derive(seed, "root")
    free = left.nonzero().flatten()
    pools = ClassPools(labels[free], generator)
    drawn: list[Tensor] = []
    while count:
        classes = [
            label for label in torch.randperm(len(pools), generator=generator).tolist() if pools.left(label)
        ][:count]
        drawn += [pools.take(label, 1) for label in classes]
        count -= len(classes)
    return free[torch.cat(drawn)]
