"""What the paper says of a run: whether the setting is its own, and the figure it prints for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from fedcap.experiments.paper.entry import Entry
from fedcap.experiments.paper.items import item
from fedcap.experiments.paper.measures import MEASURES
from fedcap.experiments.paper.recorded import resolved
from fedcap.experiments.paper.setups import DATASETS, SET_UP_OF
from fedcap.experiments.store import current_settings
from fedcap.registry import spelling
from fedcap.report.story import Check, Said
from fedcap.runs import settings_key

PRINTED = {"table-1": "Table I", "table-2": "Table II", "table-3": "Table III", "table-4": "Table IV"}
DRAWN = ("baselines", "ditto-rules")
"""Figures of the paper that name methods, and print no numbers."""
NAME = "The paper's setting"
MOST = 4
"""How many differences are told."""
NO_DIFFERENCE = ("seed", "workers", "checkpoint_every", "device", "eval_every", "track")


def said_of(settings: Mapping[str, Any]) -> Said:
    """Return what the paper says of a run with these settings, all resolved, whatever its seed."""
    return _said(json.dumps(settings, sort_keys=True))


@cache
def _said(written: str) -> Said:
    settings = json.loads(written)
    dataset = str(settings["dataset"]["name"])
    if dataset not in (*DATASETS, *SET_UP_OF):
        return Said(Check("none", NAME, f"The paper has no figures for {dataset}."))
    now = current_settings(settings)
    found = _entries(dataset).get(settings_key({**now, "seed": 0}), [])
    if not found:
        return Said(_nearest(now, dataset))
    places = ", ".join(dict.fromkeys(where for where, _ in found))
    figures = [(where, entry) for where, entry in found if entry.published is not None]
    where, entry = figures[0] if figures else (places, found[0][1])
    stands_in = f"; {dataset} stands in for {SET_UP_OF[dataset]}" if dataset in SET_UP_OF else ""
    return Said(
        Check("ok", NAME, f"The same as in its {places}{stands_in}."),
        rows=list(dict.fromkeys(_row(where, entry) for where, entry in found)),
        published=entry.published,
        read=entry.read,
        source=where,
    )


def _row(where: str, entry: Entry) -> str:
    """Return what the paper calls the method; the parts of FedCAP have options of their own."""
    column = entry.column.partition(":")[0]
    return f"{where}: {column}" if where == PRINTED["table-4"] else column


@cache
def _entries(dataset: str) -> Mapping[str, list[tuple[str, Entry]]]:
    """Return where the paper has which run on a data set, by the hash of its settings with seed 0."""
    found: dict[str, list[tuple[str, Entry]]] = {}
    for name in (*PRINTED, *DRAWN):
        for entry in item(name).entries:
            if entry.dataset == dataset and MEASURES[entry.read].is_accuracy:
                where = PRINTED.get(name, "figures")
                found.setdefault(settings_key(resolved(entry)), []).append((where, entry))
    return found


def _nearest(settings: Mapping[str, Any], dataset: str) -> Check:
    """Say what differs from the paper's run with this method, rule and attack; if there is none, say that."""
    method, attack = settings["method"], settings["attack"]["name"]
    theirs = [resolved(found[0][1]) for found in _entries(dataset).values()]
    same = [
        other
        for other in theirs
        if (other["method"]["name"], other["attack"]["name"]) == (method["name"], attack)
        and spelling(other["method"].get("rule", "")) == spelling(method.get("rule", ""))
    ]
    if not same:
        called = "no attack" if attack == "none" else attack
        return Check("none", NAME, f"The paper has no run of {method['name']} with {called} on {dataset}.")
    gaps = min((_differences(settings, other) for other in same), key=len)
    more = f" and {len(gaps) - MOST} more" if len(gaps) > MOST else ""
    return Check("warn", NAME, f"Another: {'; '.join(gaps[:MOST])}{more}.")


def _differences(ours: Any, theirs: Any, name: str = "") -> list[str]:
    """Return the settings that differ, a few words each."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        keys = [key for key in {**theirs, **ours} if name or key not in NO_DIFFERENCE]
        pairs = ((f"{name}.{key}" if name else key, ours.get(key), theirs.get(key)) for key in keys)
        return [gap for place, one, other in pairs for gap in _differences(one, other, place)]
    return [] if ours == theirs else [f"{name} is {_word(ours)}, the paper's {_word(theirs)}"]


def _word(value: Any) -> str:
    return "none" if value is None else spelling(value) if isinstance(value, Mapping) else str(value)
