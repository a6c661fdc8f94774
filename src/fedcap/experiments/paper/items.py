"""All tables and figures by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from fedcap.errors import InputError, nearest
from fedcap.experiments.paper import figures, tables
from fedcap.experiments.paper.entry import Item
from fedcap.experiments.paper.traps import traps


@cache
def items() -> Mapping[str, Item]:
    """Return the paper's tables and figures, and ours, by name."""
    found = [
        tables.table_1(),
        tables.table_2(),
        tables.table_3(),
        tables.table_4(),
        tables.table_5(),
        figures.personal_limits(),
        figures.robust_limits(),
        figures.norms(),
        figures.baselines(),
        figures.ditto_rules(),
        figures.sweep("alpha", "How sharply likeness decides: alpha"),
        figures.automatic(),
        figures.sweep("phi", "A client's share in its own model: phi"),
        figures.sweep("lambda_", "The pull on personal models: lambda"),
        figures.malicious_share(),
        figures.sharing(),
        figures.hardened(),
        traps(),
    ]
    return {item.name: item for item in found}


def item(name: str) -> Item:
    """Return a table or a figure; an unknown name answers with the nearest."""
    found = items().get(name.lower())
    if found is None:
        raise InputError(f"unknown table or figure {name!r}: {nearest(name, items())}")
    return found
