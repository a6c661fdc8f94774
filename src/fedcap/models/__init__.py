"""The networks, by name; `module:function` names the user's own."""

from fedcap.models.base import Architecture, builder, names, registry
from fedcap.models.trying import label

__all__ = ["Architecture", "builder", "label", "names", "registry"]
