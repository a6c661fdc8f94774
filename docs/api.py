"""The pages of the Python interface: a directive for each public name, which mkdocstrings fills in."""

from __future__ import annotations

import importlib
from types import FunctionType, ModuleType

import fedcap
from docs.markdown import code, inline, page

ROOMS = ("attacks", "aggregators", "detectors", "methods", "simulation", "records")
"""Rooms whose public names one's own code builds on."""


def pages() -> dict[str, str]:
    """Return the pages by their paths, and the list by which they are found."""
    found = {"fedcap.md": described("fedcap", fedcap)}
    for room in ROOMS:
        module = getattr(fedcap, room, None) or importlib.import_module(f"fedcap.{room}")
        found[f"{room}.md"] = described(f"fedcap.{room}", module)
    return found | {"SUMMARY.md": "".join(f"- [{_title(path)}]({path})\n" for path in found)}


def _title(path: str) -> str:
    name = path.removesuffix(".md")
    return name if name == "fedcap" else f"fedcap.{name}"


def described(name: str, module: ModuleType) -> str:
    """Return the page of a module: what it says of itself, and each of its public names."""
    directives = []
    for public in sorted(module.__all__, key=str.lower):
        thing = getattr(module, public)
        if isinstance(thing, type | FunctionType):
            directives.append(f"::: {thing.__module__}.{thing.__qualname__}")
    about = inline((module.__doc__ or "").strip())
    return page(f"# {code(name)}", about, *directives)
