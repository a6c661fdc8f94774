"""Data sets, and how they are split over clients."""

from fedcap.data.base import Dataset, FederatedData, Scaling, Source, registry
from fedcap.data.own import table
from fedcap.data.partitioning import deal, federate, partition_table

names = registry.names
make = registry.make

__all__ = [
    "Dataset",
    "FederatedData",
    "Scaling",
    "Source",
    "deal",
    "federate",
    "make",
    "names",
    "partition_table",
    "registry",
    "table",
]
