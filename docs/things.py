"""A page for everything that can be named, and one for each kind, from the registries and the docstrings.

Nothing is kept by hand: what registers itself has a page, with its options, its presets and a command.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from docs.markdown import code, console, inline, page, prose, table
from fedcap import aggregators
from fedcap.cli.list import Explanation, explanations, registries
from fedcap.registry import Registry

BESIDE = (20, 6)
"""The N and M for which the page of all rules has the number of malicious rows that each tolerates."""

OWN = {
    "methods": "method",
    "attacks": "attack",
    "aggregators": "rule",
    "detectors": "detector",
    "data sets": "data",
    "models": "network",
    "trackers": "tracker",
}
"""Where it is told how to bring one's own, by room."""


def pages() -> dict[str, str]:
    """Return the pages by their paths, and for each kind the list by which they are found."""
    found = {"SUMMARY.md": "".join(f"- [{room.capitalize()}]({_folder(room)}/)\n" for room in registries())}
    for room, registry in registries().items():
        folder = _folder(room)
        things = [explained(registry, name) for name in registry.names()]
        found[f"{folder}/index.md"] = overview(room, registry, things)
        found[f"{folder}/SUMMARY.md"] = "".join(
            [f"- [All {room}](index.md)\n", *(f"- [{thing.name}]({thing.name}.md)\n" for thing in things)]
        )
        found |= {f"{folder}/{thing.name}.md": described(registry, thing) for thing in things}
    return found


def _folder(room: str) -> str:
    return room.replace(" ", "-")


def explained(registry: Registry[Any], name: str) -> Explanation:
    """Return what is known of one thing of a registry."""
    return next(found for found in explanations(name) if found.kind == registry.kind)


def overview(room: str, registry: Registry[Any], things: list[Explanation]) -> str:
    """Return the page of a kind: a line for each thing, and what the room says of itself."""
    head, rows = ["name", "what it is"], [[_link(thing), inline(thing.summary)] for thing in things]
    note = ""
    if registry is aggregators.registry:
        clients, bad = BESIDE
        head.append(f"tolerates, of {clients}")
        for row, thing in zip(rows, things, strict=True):
            row.append(str(aggregators.make(thing.name).tolerates(clients, bad)))
        note = (
            f"The last column is the number of malicious rows among {clients}, whatever their values, that a"
            f" rule with M = {bad} tolerates. 0 is no guarantee: the rule's page says what it works against."
        )
    own = f"[Bring your own {OWN[room]}](../../own/{OWN[room]}.md)." if room in OWN else ""
    return page(f"# {room.capitalize()}", prose(_room(registry)), table(head, rows), note, own)


def _room(registry: Registry[Any]) -> str:
    """Return what the room of a registry says of itself."""
    homes = [registry.get(name).__module__.rpartition(".")[0] for name in registry.names()]
    return inspect.getdoc(importlib.import_module(min(homes, key=len))) or ""


def _link(thing: Explanation) -> str:
    return f"[{thing.name}]({thing.name}.md)"


def described(registry: Registry[Any], thing: Explanation) -> str:
    """Return the page of one thing; its summary stands there if its file has other things too."""
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
        f"Its code is in {code(cls.__module__)}.",
    )
