"""The networks, by name; `module:function` names one's own."""

from fedcap.models.base import Architecture, builder, names, prefers_onednn, registry

__all__ = ["Architecture", "builder", "names", "prefers_onednn", "registry"]
