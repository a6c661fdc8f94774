"""What a grid may choose from: methods, rules, attacks and data sets, however they are given.

A choice is a name, a word such as `bucketing(median)`, a table of name and options, an object or a class.
Here it becomes a table, with its name resolved, and gets the label that tables call it by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from fedcap import aggregators, attacks, data, methods
from fedcap.errors import InputError
from fedcap.registry import GIVEN, Registry, as_table, spelling
from fedcap.runs import overlay
from fedcap.simulation.presets import PRESETS

NO_ATTACK = "none"
UNLESS_GIVEN = {"dataset": "digits", "method": "fedcap", "attack": NO_ATTACK}
"""What an experiment takes where nothing is chosen."""
_REGISTRIES: Mapping[str, Registry[Any]] = {
    "dataset": data.registry,
    "method": methods.registry,
    "rule": aggregators.registry,
    "attack": attacks.registry,
}
KINDS = tuple(_REGISTRIES)


def names(kind: str) -> list[str]:
    """Return all that there is of a kind; of attacks, that there is none comes first."""
    return [*[NO_ATTACK] * (kind == "attack"), *_REGISTRIES[kind].names()]


def table_of(kind: str, choice: Any) -> dict[str, Any]:
    """Return a choice as a table of its name, resolved, and its options; an unknown name is an error."""
    registry = _REGISTRIES[kind]
    table = as_table(data.table(choice) if kind == "dataset" else registry.table(choice), kind)
    if kind == "attack" and table["name"].lower() == NO_ATTACK:
        return {**table, "name": NO_ATTACK}
    if GIVEN not in table:
        table["name"] = registry.resolve(table["name"])
        registry.get(table["name"])
    return table


def label_of(kind: str, table: Mapping[str, Any]) -> str:
    """Return the word for a choice, without what is as usual: `fedavg`, `bucketing(median)`, `patients`.

    What is usual of an option may depend on the data set: such an option is always in the word.
    """
    if GIVEN in table:
        return type(table[GIVEN]).__name__
    shown = dict(table)
    if kind == "dataset":
        shown.pop("data", None)
        if "path" in shown:
            shown["name"] = Path(shown.pop("path")).stem
        return spelling(shown)
    usual = {} if table["name"] == NO_ATTACK else _defaults(kind, table["name"])
    if kind == "method":
        preset = {option for methods in PRESETS.values() for option in methods.get(table["name"], {})}
        usual = {option: value for option, value in usual.items() if option not in preset}
    inner = {"rule": shown.pop("rule", usual["rule"])} if kind == "rule" and "rule" in usual else {}
    return spelling({key: value for key, value in shown.items() if value != usual.get(key)} | inner)


def _defaults(kind: str, name: str) -> dict[str, Any]:
    known: Any = _REGISTRIES[kind].get(name)
    made = {
        field.name: field.default_factory() for field in fields(known) if field.default_factory is not MISSING
    }
    return {field.name: field.default for field in fields(known)} | made


def options_of(kind: str, table: Mapping[str, Any]) -> list[str]:
    """Return the options that a thing has."""
    if GIVEN in table:
        return [field.name for field in fields(table[GIVEN]) if field.init]
    if table["name"] == NO_ATTACK:
        return []
    return [*_REGISTRIES[kind].options(table["name"]), *["clients"] * (kind == "attack")]


def with_options(kind: str, table: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a choice with options that it takes laid over its own."""
    if GIVEN not in table or not options:
        return overlay(table, options)
    try:
        thing = replace(table[GIVEN], **options)
    except (TypeError, ValueError) as error:
        raise InputError(f"{kind} {label_of(kind, table)}: {error}") from None
    return table_of(kind, thing)
