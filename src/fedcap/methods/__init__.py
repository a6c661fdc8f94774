"""What server and clients do in a round: one file per method, a few pure steps over explicit state."""

from fedcap.methods.base import Method, registry

names = registry.names
make = registry.make

__all__ = ["Method", "make", "names", "registry"]
