"""Which client has which samples: one file per partition.

`make(name, **options)` gives `partition(labels, clients, samples, generator)`, which returns a tensor of
sample indices for each client. No sample is given to two clients.
"""

from fedcap.data.partitions.base import Partition, Piles, registry

names = registry.names
make = registry.make

__all__ = ["Partition", "Piles", "make", "names", "registry"]
