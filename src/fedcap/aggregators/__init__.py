"""Aggregation rules: functions from the N×D matrix of updates to one update, one rule per file.

`make(name, **options)` returns `rule(updates: Tensor[N, D], weights=None, malicious=0) -> Tensor[D]`.
"""

from fedcap.aggregators.base import Aggregator, Robust, registry

names = registry.names
make = registry.make

__all__ = ["Aggregator", "Robust", "make", "names", "registry"]
