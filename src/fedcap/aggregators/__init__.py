"""How a server turns an N×D matrix of updates into one update: one file per rule.

`make(name, **options)` gives `rule(updates: Tensor[N, D], weights=None, malicious=0) -> Tensor[D]`.
"""

from fedcap.aggregators.base import Aggregator, Robust, registry

names = registry.names
make = registry.make

__all__ = ["Aggregator", "Robust", "make", "names", "registry"]
