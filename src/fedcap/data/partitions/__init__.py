"""Partitions: which client has which samples, one partition per file.

`make(name, **options)` returns `partition(labels, clients, samples, generator)`, which returns a sequence of
tensors, the sample indices of each client: a list, or `Shards`. No sample belongs to two clients.
"""

from fedcap.data.partitions.base import ClassPools, Partition, Shards, registry

names = registry.names
make = registry.make

__all__ = ["ClassPools", "Partition", "Shards", "make", "names", "registry"]
