"""How a source deals its samples out: the partition that its options name, and the clients' data by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedcap.data import partitions
from fedcap.data.base import Dataset, FederatedData, Source
from fedcap.data.dealing import federate
from fedcap.registry import as_table


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
