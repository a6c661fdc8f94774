"""From a data set to the data of many clients: deal samples out, split each client's part, keep a root set.

All of it is a function of the seed. The shares, each client's split and the root set are drawn by separate
generators: a run with a root set has the same clients as one without, unless clients leave nothing for it.

How a source deals its samples out: the partition that its options name, and the clients' data by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedcap.data import partitions
from fedcap.data.base import Dataset, FederatedData, Source, digest
from fedcap.data.partitions import Partition, Piles
from fedcap.errors import InputError
from fedcap.registry import as_table
from fedcap.rng import derive

CLIENTS = 20
"""How many clients there are if neither the user nor the data says."""


def federate(
    dataset: Dataset,
    partition: Partition,
    clients: int | None,
    samples: int | None,
    train_share: float,
    seed: int,
    root: int = 0,
) -> FederatedData:
    """Deal a data set out to clients and split each one's part into training and test.

    The server's root set has `root` samples that no client has. Where all samples are some client's, as
    those of people who recorded their own, it is taken out of the clients' training parts.
    """
    if clients is None:
        clients = len(dataset.owner_names) or CLIENTS
    deal = partition.bind(dataset.owners)
    shares = deal(dataset.samples.y, clients, samples, derive(seed, "partition"))
    names = _distinct(deal.client_names(shares, dataset.owner_names))
    orders = [
        share[torch.randperm(len(share), generator=derive(seed, "split", client))]
        for client, share in enumerate(shares)
    ]
    parts = [_split(dataset, order, train_share) for order in orders]
    drawn = draw_root(dataset.samples.y, parts, root, seed) if root else None
    if drawn is not None:
        parts = [(train[~torch.isin(train, drawn)], test) for train, test in parts]
    _refuse_empty(names, parts, train_share, dataset.test is not None)
    return FederatedData(
        names,
        [dataset.take(train) for train, _ in parts],
        [dataset.take(test) for _, test in parts],
        dataset.classes,
        dataset.digest(),
        digest(*shares),
        dataset.class_names,
        None if drawn is None else dataset.take(drawn),
        dataset.pixels,
    )


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the clients' names; refuse a name that two clients have."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"two clients are called {twice[0]!r}: give each owner in the data a name of its own"
        )
    return names


def _split(dataset: Dataset, order: Tensor, train_share: float) -> tuple[Tensor, Tensor]:
    """Return what a client trains on and what it is tested on: as the data comes split, or by share."""
    if dataset.test is not None:
        tests = dataset.test[order]
        return order[~tests], order[tests]
    count = round(train_share * len(order))
    return order[:count], order[count:]


def _refuse_empty(
    names: Sequence[str], parts: Sequence[tuple[Tensor, Tensor]], train_share: float, comes_split: bool
) -> None:
    """Refuse clients without a training or a test part; the error names the first one."""
    short = [at for at, (train, test) in enumerate(parts) if not len(train) or not len(test)]
    if not short:
        return
    count = sum(map(len, parts[short[0]]))
    why = (
        "the split that the data comes with leaves it without a training or a test part"
        if comes_split
        else f"too few for a training and a test part (train_share {train_share:g})"
    )
    others = f"; so it is with {len(short) - 1} more" if len(short) > 1 else ""
    raise InputError(
        f"client {names[short[0]]!r} has {count} sample{'s' * (count != 1)}: {why}{others};"
        " give it more samples, leave it out of the data, or use fewer clients (dataset.clients)"
    )


def draw_root(labels: Tensor, parts: Sequence[tuple[Tensor, Tensor]], count: int, seed: int) -> Tensor:
    """Draw samples, equally many of each class as far as there are enough, that no client has.

    If the clients, each with its training and test part, leave too few, draw from the training parts too.
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
            f" {unowned}, too few even with half of what they train on; give clients fewer (dataset.samples)"
        )
    generator = derive(seed, "root")
    free = left.nonzero().flatten()
    piles = Piles(labels[free], generator)
    drawn: list[Tensor] = []
    while count:
        there = [
            label for label in torch.randperm(len(piles), generator=generator).tolist() if piles.left(label)
        ]
        taken = there[:count]
        drawn += [piles.deal(label, 1) for label in taken]
        count -= len(taken)
    return free[torch.cat(drawn)]


def partition_table(source: Source) -> dict[str, Any]:
    """Return the partition's name and options; options without a name are for the data set's default one."""
    chosen, usual = source.partition, source.usual_partition()
    if isinstance(chosen, Mapping) and "name" not in chosen and usual is not None:
        table = {**as_table(usual, "partition"), **chosen}
    else:
        table = as_table(chosen, "partition")
    name = partitions.registry.resolve(table.pop("name"))
    return {"name": name, **(source.groups if name == "groups" else {}), **table}


def deal(
    source: Source, dataset: Dataset, seed: int, root: int = 0, holdout: float | None = None
) -> FederatedData:
    """Deal a source's samples out to its clients, and prepare them as clients train on them.

    With `holdout`, that share of each client's training samples stands in the place of its test samples.
    """
    samples = None if source.samples == "all" else source.samples
    partition = partitions.registry.build(partition_table(source))
    dealt = federate(dataset, partition, source.clients, samples, source.train_share, seed, root=root)
    return source.prepare(dealt if holdout is None else dealt.holding_out(holdout))
