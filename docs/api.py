"""The pages of the Python interface: a directive for each public name, which mkdocstrings fills in."""

from __future__ import annotations

import importlib
from types import FunctionType, ModuleType

import fedcap
from docs.markdown import code, inline, page

ROOMS = ("attacks", "aggregators", "detectors", "methods", "simulation", "records", "trackers")
"""Rooms whose public names one's own code builds on."""


def pages() -> dict[str, str]:
    """Return the pages by their paths, and the list by which they are found."""
    modules = {"fedcap": fedcap}
    for room in ROOMS:
        modules[f"fedcap.{room}"] = getattr(fedcap, room, None) or importlib.import_module(f"fedcap.{room}")
    found = {f"{name}.md": described(name, module) for name, module in modules.items()}
    return found | {"SUMMARY.md": "".join(f"- [{name}]({name}.md)\n" for name in modules)}


def described(name: str, module: ModuleType) -> str:
    """Return the page of a module: what it says of itself, and each of its public names."""
    directives = []
    for public in sorted(module.__all__, key=str.lower):
        thing = getattr(module, public)
        if isinstance(thing, type | FunctionType):
            directives.append(f"::: {thing.__module__}.{thing.__qualname__}")
    about = inline((module.__doc__ or "").strip())
    return page(f"# {code(name)}", about, *directives)
