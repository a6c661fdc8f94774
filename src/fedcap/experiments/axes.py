"""The axes of a grid: what varies, and what each of its values is called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedcap.errors import InputError
from fedcap.registry import spelling, split
from fedcap.simulation import settings

PLURALS = {"datasets": "dataset", "methods": "method", "rules": "rule", "attacks": "attack", "seeds": "seed"}
"""The usual axes, and what a value of each is called in a cell's place."""
ALL = "all"
"""Stands for everything of its kind that has a name."""


@dataclass(frozen=True)
class Axis:
    """A setting, such as `method` or `training.lr`, and its values by their labels."""

    setting: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, setting: str, given: Any) -> Axis:
        """Read an axis: one value, several, or a mapping from labels of one's own to values."""
        if isinstance(given, Mapping) and "name" not in given:
            pairs = [(str(label), _chosen(setting, value)) for label, value in given.items()]
        else:
            pairs = [_labelled(setting, value) for value in _several(setting, given)]
        if not pairs:
            raise InputError(f"axis {setting} has no values: give one, or leave the axis out")
        values: dict[str, Any] = {}
        for label, value in pairs:
            if label in values and values[label] != value:
                raise InputError(
                    f"two values of axis {setting} are called {label}: give labels of your own, as a mapping"
                )
            values[label] = value
        return cls(setting, values)


def _several(setting: str, given: Any) -> Sequence[Any]:
    if setting == "seed":
        return seeds(given)
    if setting in settings.KINDS:
        if isinstance(given, str):
            given = split(given)
        if given == [ALL] and setting != "dataset":
            return settings.names(setting)
    elif isinstance(given, str):
        return [given]
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]


def _labelled(setting: str, value: Any) -> tuple[str, Any]:
    """Return a value and its label; a table may bring its label."""
    if setting not in settings.KINDS:
        return spelling(value), value
    own = None
    if isinstance(value, Mapping) and "label" in value:
        own, value = str(value["label"]), {key: inner for key, inner in value.items() if key != "label"}
    table = _chosen(setting, value)
    return own or settings.label_of(setting, table), table


def _chosen(setting: str, value: Any) -> Any:
    return settings.table_of(setting, value) if setting in settings.KINDS else value


def seeds(given: Any) -> list[int]:
    """Return seeds given as numbers, or as a text such as `0-4,7`."""
    if isinstance(given, str):
        return list(_ranges(given))
    many = given if isinstance(given, Sequence | range) else [given]
    for seed in many:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise InputError(f"seeds are whole numbers from 0, such as 0-4,7 (got {seed!r})")
    return list(many)


def _ranges(text: str) -> Iterator[int]:
    for part in split(text):
        found = re.fullmatch(r"(\d+)(?:\s*-\s*(\d+))?", part)
        if found is None or (found[2] and int(found[2]) < int(found[1])):
            raise InputError(f"seeds are whole numbers from 0, such as 0-4,7 (got {part!r})")
        yield from range(int(found[1]), int(found[2] or found[1]) + 1)
