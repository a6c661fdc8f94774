"""Networks, by name. `module:function` names a network of the user; Python may give one without a name."""

from fedcap.models.base import Architecture, builder, names, registry
from fedcap.models.given import Given, as_choice, label

__all__ = ["Architecture", "Given", "as_choice", "builder", "label", "names", "registry"]
