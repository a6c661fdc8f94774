"""All settings of a run: what the user gave, over what the data set suggests and the method's presets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from pydantic import ValidationError

from fedcap import attacks, data, methods, models
from fedcap.errors import nearest, validation_message
from fedcap.registry import GIVEN, as_table
from fedcap.runs import overlay
from fedcap.simulation.choosing import UNLESS_GIVEN
from fedcap.simulation.presets import preset
from fedcap.training import SGD


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with names resolved and defaults filled in for what was not given."""
    tables = {key: value for key, value in given.items() if key not in UNLESS_GIVEN or value is not None}
    if "dataset" in tables:
        tables["dataset"] = data.table(tables["dataset"])
    for key, registry in (("method", methods.registry), ("attack", attacks.registry)):
        if key in tables:
            tables[key] = registry.table(tables[key])
    if "model" in tables:
        tables["model"] = models.as_choice(tables["model"])
    settings = overlay(UNLESS_GIVEN, tables)
    for key in UNLESS_GIVEN:
        settings[key] = as_table(settings[key], key)
    dataset, method, attack = (settings[key] for key in UNLESS_GIVEN)
    source: Any = data.registry.get(dataset["name"])
    suggested = source.suggest(dataset)
    dataset = overlay(suggested.pop("dataset", {}), dataset)
    dataset["name"] = data.registry.resolve(dataset["name"])
    if GIVEN not in method:
        method["name"] = methods.registry.resolve(method["name"])
    set_up = dataset.get("like") or dataset["name"]
    method = {**preset(data.registry.resolve(set_up), method["name"]), **method}
    if attack["name"].lower() == "none":
        attack["name"] = "none"
    elif GIVEN not in attack:
        attack["name"] = attacks.registry.resolve(attack["name"])
    return overlay(suggested, settings) | {"dataset": dataset, "method": method, "attack": attack}


def explain(error: ValidationError, known: Iterable[str]) -> str:
    """Return what is wrong with the settings in one line; for an unknown one, suggest the nearest names."""
    first = error.errors()[0]
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        *place, key = (str(part) for part in first["loc"])
        there = [field.name for field in fields(SGD)] if place else known
        owner = None if place else _owner(key)
        hint = nearest(key, there) if owner is None else f"it is an option of the {owner}, {owner}.{key}"
        return f"unknown setting {'.'.join([*place, key])!r}: {hint}"
    return validation_message(error)


def _owner(option: str) -> str | None:
    """Return the setting whose option this is, if it is one."""
    if option in (field.name for field in fields(SGD)):
        return "training"
    for owner, registry in (("method", methods.registry), ("attack", attacks.registry)):
        if any(option in registry.options(name) for name in registry.names()):
            return owner
    return None


def without_none(settings: Any) -> Any:
    """Return nested settings without those that have no value: TOML knows none."""
    if isinstance(settings, Mapping):
        return {key: without_none(value) for key, value in settings.items() if value is not None}
    return [without_none(value) for value in settings] if isinstance(settings, list | tuple) else settings
