"""The networks, by name; `module:function` names the user's own."""

from fedcap.models.base import Architecture, builder, names, registry

__all__ = ["Architecture", "builder", "names", "registry"]
