"""Data sets, and how they are split over clients."""

from fedcap.data.base import Dataset, FederatedData, Source, registry
from fedcap.data.choosing import deal, partition_table
from fedcap.data.dealing import federate
from fedcap.data.own import table
from fedcap.data.scaling import Scaling

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
