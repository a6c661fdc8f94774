"""The pages of the Python interface: a directive for each public name, which mkdocstrings replaces."""

from __future__ import annotations

import importlib
from types import FunctionType, ModuleType

import fedcap
from docs.markdown import code, inline, page

PACKAGES = ("attacks", "aggregators", "detection", "methods", "simulation", "runs", "trackers")
"""Packages whose public names a user's own code may use."""


def pages() -> dict[str, str]:
    """Return the pages by their paths, and the list of them."""
    modules = {"fedcap": fedcap}
    modules |= {f"fedcap.{name}": importlib.import_module(f"fedcap.{name}") for name in PACKAGES}
    found = {f"{name}.md": module_page(name, module) for name, module in modules.items()}
    return found | {"SUMMARY.md": "".join(f"- [{name}]({name}.md)\n" for name in modules)}


def module_page(name: str, module: ModuleType) -> str:
    """Return the page of a module: its docstring, and each of its public classes and functions."""
    directives = []
    for public in sorted(module.__all__, key=str.lower):
        value = getattr(module, public)
        if isinstance(value, type | FunctionType):
            directives.append(f"::: {value.__module__}.{value.__qualname__}")
    about = inline((module.__doc__ or "").strip())
    return page(f"# {code(name)}", about, *directives)
