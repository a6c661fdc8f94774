"""From a data set to the data of clients: partition it, split each client's part, draw a root set.

All of it is a function of the seed. The partition, each client's split and the root set are drawn by separate
generators: the clients of a run with a root set are those of a run without one, unless they leave too few
samples for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedcap.data import partitions
from fedcap.data.base import Dataset, FederatedData, Source, tensors_digest
from fedcap.data.partitions import ClassPools, Partition
from fedcap.errors import InputError
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
    federated = federate(dataset, partition, source.clients, samples, source.train_share, seed, root=root)
    return source.prepared(federated if holdout is None else federated.holding_out(holdout))


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
) -> FederatedData:
    """Partition a data set among clients and split each client's part into training and test.

    The server's root set has `root` samples that no client has. If the clients own too many samples, as in
    data of users who recorded their own, it is taken from the clients' training parts.
    """
    if clients is None:
        clients = len(dataset.owner_names) or _CLIENTS
    partition = partition.bind(dataset.owners)
    shares = partition(dataset.samples.y, clients, samples, derive(seed, "partition"))
    names = _distinct(partition.client_names(shares, dataset.owner_names))
    orders = [
        share[torch.randperm(len(share), generator=derive(seed, "split", client))]
        for client, share in enumerate(shares)
    ]
    parts = [_split(dataset, order, train_share) for order in orders]
    root_set = draw_root(dataset.samples.y, parts, root, seed) if root else None
    if root_set is not None:
        parts = [(train[~torch.isin(train, root_set)], test) for train, test in parts]
    _refuse_empty(names, parts, train_share, dataset.test is not None)
    return FederatedData(
        names,
        [dataset.take(train) for train, _ in parts],
        [dataset.take(test) for _, test in parts],
        dataset.classes,
        dataset.digest(),
        tensors_digest(*shares),
        dataset.class_names,
        None if root_set is None else dataset.take(root_set),
        dataset.pixels,
        features=dataset.features,
        levels=dataset.levels,
    )


def _distinct(names: Sequence[str]) -> Sequence[str]:
    """Return the clients' names; raise an `InputError` if two clients have the same name."""
    if isinstance(names, NumberedNames):
        return names
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"two clients are called {repeated[0]!r}: give each owner in the data another name")
    return names


def _split(dataset: Dataset, order: Tensor, train_share: float) -> tuple[Tensor, Tensor]:
    """Return a client's training and test samples: by the data's own split, or by share."""
    if dataset.test is not None:
        tests = dataset.test[order]
        return order[~tests], order[tests]
    count = round(train_share * len(order))
    return order[:count], order[count:]


def _refuse_empty(
    names: Sequence[str], parts: Sequence[tuple[Tensor, Tensor]], train_share: float, has_split: bool
) -> None:
    """Raise an `InputError` if a client has no training or no test part; it names the first one."""
    short = [at for at, (train, test) in enumerate(parts) if not len(train) or not len(test)]
    if not short:
        return
    count = sum(map(len, parts[short[0]]))
    why = (
        "the data's own split leaves it without a training or a test part"
        if has_split
        else f"too few for a training and a test part (train_share {train_share:g})"
    )
    others = f"; the same holds for {len(short) - 1} more" if len(short) > 1 else ""
    raise InputError(
        f"client {names[short[0]]!r} has {count} sample{'s' * (count != 1)}: {why}{others};"
        " give it more samples, leave it out of the data, or use fewer clients (dataset.clients)"
    )


def draw_root(labels: Tensor, parts: Sequence[tuple[Tensor, Tensor]], count: int, seed: int) -> Tensor:
    """Draw samples that no client has, with equal numbers of each class as far as there are enough.

    If the clients' parts leave too few, draw from their training parts as well.
    """
    left = torch.ones(len(labels), dtype=torch.bool)
    for part in parts:
        left[torch.cat(part)] = False
    unowned = int(left.sum())
    if unowned < count:
        for train, _ in parts:
            left[train] = True
    if int(left.sum()) - unowned < 2 * (count - unowned):
        raise InputError(
            f"a root set of {count} samples needs samples that no client has, and the clients leave"
            f" {unowned}, too few even with half of their training samples;"
            " use fewer samples per client (dataset.samples)"
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
