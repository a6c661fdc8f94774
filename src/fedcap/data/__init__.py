"""Data sets, and their partition among clients."""

from fedcap.data.base import Dataset, FederatedData, Scaling, Source, registry
from fedcap.data.own import table
from fedcap.data.partitioning import federate, federate_source, partition_table

names = registry.names
make = registry.make

__all__ = [
    "Dataset",
    "FederatedData",
    "Scaling",
    "Source",
    "federate",
    "federate_source",
    "make",
    "names",
    "partition_table",
    "registry",
    "table",
]
