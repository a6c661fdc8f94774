"""The networks, by name; `module:function` names the user's own, and Python may give one that has no name."""

from fedcap.models.base import Architecture, builder, names, registry
from fedcap.models.given import Given, as_choice, label

__all__ = ["Architecture", "Given", "as_choice", "builder", "label", "names", "registry"]
