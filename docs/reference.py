"""A page for each registered thing and each kind of thing, made from registries and docstrings."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from docs.markdown import code, console, inline, page, prose, table
from fedcap import aggregators
from fedcap.cli.list import Explanation, explanations, registries
from fedcap.registry import Registry

TOLERANCE_OF = (20, 6)
"""The N and M for which the page of all rules shows how many malicious rows each tolerates."""

OWN = {
    "methods": "method",
    "attacks": "attack",
    "aggregators": "rule",
    "detectors": "detector",
    "data sets": "data",
    "models": "network",
    "trackers": "tracker",
}
"""The page about the user's own things, by kind."""


def pages() -> dict[str, str]:
    """Return the pages by their paths, and the list of pages of each kind."""
    found = {"SUMMARY.md": "".join(f"- [{kind.capitalize()}]({_folder(kind)}/)\n" for kind in registries())}
    for kind, registry in registries().items():
        folder = _folder(kind)
        things = [explanation(registry, name) for name in registry.names()]
        found[f"{folder}/index.md"] = overview(kind, registry, things)
        found[f"{folder}/SUMMARY.md"] = "".join(
            [f"- [All {kind}](index.md)\n", *(f"- [{thing.name}]({thing.name}.md)\n" for thing in things)]
        )
        found |= {f"{folder}/{thing.name}.md": thing_page(registry, thing) for thing in things}
    return found


def _folder(kind: str) -> str:
    return kind.replace(" ", "-")


def explanation(registry: Registry[Any], name: str) -> Explanation:
    """Return the explanation of one thing of a registry."""
    return next(found for found in explanations(name) if found.kind == registry.kind)


def overview(kind: str, registry: Registry[Any], things: list[Explanation]) -> str:
    """Return the page of a kind: the docstring of its package, and a line for each thing."""
    head, rows = ["name", "what it is"], [[_link(thing), inline(thing.summary)] for thing in things]
    note = ""
    if registry is aggregators.registry:
        clients, bad = TOLERANCE_OF
        head.append(f"tolerates, of {clients}")
        for row, thing in zip(rows, things, strict=True):
            row.append(str(aggregators.make(thing.name).tolerates(clients, bad)))
        note = (
            f"The last column is the number of malicious rows with any values, among {clients}, that a rule"
            f" with M = {bad} tolerates. 0 means no guarantee: the page of the rule has more."
        )
    own = f"[Bring your own {OWN[kind]}](../../own/{OWN[kind]}.md)." if kind in OWN else ""
    return page(f"# {kind.capitalize()}", prose(_package_docstring(registry)), table(head, rows), note, own)


def _package_docstring(registry: Registry[Any]) -> str:
    """Return the docstring of the package of a registry's things."""
    packages = [registry.get(name).__module__.rpartition(".")[0] for name in registry.names()]
    return inspect.getdoc(importlib.import_module(min(packages, key=len))) or ""


def _link(thing: Explanation) -> str:
    return f"[{thing.name}]({thing.name}.md)"


def thing_page(registry: Registry[Any], thing: Explanation) -> str:
    """Return the page of one thing; it has the summary if the file of the thing has other things too."""
    cls = registry.get(thing.name)
    alone = sum(registry.get(name).__module__ == cls.__module__ for name in registry.names()) == 1
    also = f" Also called {', '.join(map(code, thing.aliases))}." if thing.aliases else ""
    kind = f"{'An' if thing.kind[0] in 'aeiou' else 'A'} {thing.kind}."
    options = table(
        ["option", "takes", "default", "what it does"],
        [[code(o.name), inline(o.type), code(o.default), inline(o.line)] for o in thing.options],
    )
    notes = "\n".join(f"- {inline(note)}" for note in thing.notes)
    use = console(thing.use) if thing.use.startswith("fedcap ") else f"```python\n{thing.use}\n```"
    return page(
        f"# {thing.name}",
        f"{kind}{also}" if alone else f"{kind}{also} {inline(thing.summary)}",
        prose(thing.about),
        *(["## Options", options] if options else []),
        *(["## On each data set", notes] if notes else []),
        "## Use",
        use,
        f"Module: {code(cls.__module__)}.",
    )
