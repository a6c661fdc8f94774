"""From a data set to the data of many clients: deal samples out, split each client's part, keep a root set.

All of it is a function of the seed. The shares, each client's split and the root set are drawn by separate
generators: a run with a root set has the same clients as one without.
"""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from fedcap.data.base import Dataset, FederatedData, digest
from fedcap.data.partitions import Partition, Piles
from fedcap.randomness import derive
from fedcap.registry import InputError
from fedcap.samples import Samples

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

    The server's root set has `root` samples that no client has.
    """
    if clients is None:
        clients = len(dataset.owner_names) or CLIENTS
    deal = partition.bind(dataset.owners)
    shares = deal(dataset.samples.y, clients, samples, derive(seed, "partition"))
    train: list[Samples] = []
    test: list[Samples] = []
    for client, share in enumerate(shares):
        order = share[torch.randperm(len(share), generator=derive(seed, "split", client))]
        for part, where in zip((train, test), _split(dataset, order, train_share, client), strict=True):
            part.append(dataset.take(where))
    return FederatedData(
        _distinct(deal.client_names(shares, dataset.owner_names)),
        train,
        test,
        dataset.classes,
        dataset.digest(),
        digest(*shares),
        dataset.class_names,
        dataset.take(_root(dataset.samples.y, shares, root, seed)) if root else None,
    )


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the clients' names; refuse a name that two clients have."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"two clients are called {twice[0]!r}: give each owner in the data a name of its own"
        )
    return names


def _split(dataset: Dataset, order: Tensor, train_share: float, client: int) -> tuple[Tensor, Tensor]:
    """Return what a client trains on and what it is tested on: as the data comes split, or by share."""
    if dataset.test is not None:
        tests = dataset.test[order]
        train, test = order[~tests], order[tests]
        why = "the split that the data comes with leaves it without a training or a test part"
    else:
        count = round(train_share * len(order))
        train, test = order[:count], order[count:]
        why = f"too few for a training and a test part (train_share {train_share:g})"
    if not len(train) or not len(test):
        raise InputError(f"client {client} has {len(order)} samples: {why}")
    return train, test


def _root(labels: Tensor, shares: list[Tensor], count: int, seed: int) -> Tensor:
    """Draw samples that no client has, equally many of each class as far as there are enough."""
    left = torch.ones(len(labels), dtype=torch.bool)
    left[torch.cat(shares)] = False
    if int(left.sum()) < count:
        raise InputError(
            f"a root set of {count} samples needs samples that no client has, and the clients leave"
            f" {int(left.sum())}: {count - int(left.sum())} are missing; give clients fewer (dataset.samples)"
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
