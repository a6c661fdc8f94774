"""Partitions: which client has which samples, one partition per file.

`make(name, **options)` returns `partition(labels, clients, samples, generator)`, which returns a tensor of
sample indices for each client. No sample belongs to two clients.
"""

from fedcap.data.partitions.base import ClassPools, Partition, registry

names = registry.names
make = registry.make

__all__ = ["ClassPools", "Partition", "make", "names", "registry"]
