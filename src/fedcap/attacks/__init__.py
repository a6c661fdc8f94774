"""What malicious clients do: one file per attack, from a view of the round to malicious rows.

`make(name, **options)` gives `attack(updates: Tensor[N, D], malicious: BoolTensor[N], generator=None)`,
which returns a new N×D matrix with the malicious rows replaced and the others unchanged.
"""

from fedcap.attacks.base import Attack, Preview, ServerView, View, registry

names = registry.names
make = registry.make

__all__ = ["Attack", "Preview", "ServerView", "View", "make", "names", "registry"]
