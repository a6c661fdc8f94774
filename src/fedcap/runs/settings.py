"""The settings of a run: TOML files, combining settings, and the digest that identifies a run.

`Settings` has the values of a resolved config.toml. Reading them builds nothing that they name, so a run that
used a GPU can be read on a machine without one.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from fedcap.errors import InputError
from fedcap.registry import plain, to_table

FREE_TO_CHANGE = ("workers", "checkpoint_every", "track")
"""Settings that do not affect the results. They may change when a run is resumed."""


class Named(BaseModel):
    """A name and its options. A name alone stands for a table with that name."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return _table(value)

    @property
    def options(self) -> dict[str, Any]:
        """The options, without the name."""
        return dict(self.model_extra or {})


class Settings(BaseModel):
    """All settings of one run, with all options resolved. Unknown settings are kept unchanged."""

    model_config = ConfigDict(extra="allow", frozen=True)

    dataset: Named
    model: str
    method: Named
    attack: Named
    malicious: float
    participation: float
    rounds: int
    seed: int
    training: dict[str, Any]
    eval_every: int
    checkpoint_every: int
    workers: int | None = None
    device: str
    track: list[str] | None = None

    @property
    def dataset_name(self) -> str:
        """The name of the data set, or of the user's file or folder."""
        path = self.dataset.options.get("path")
        if not path:
            return self.dataset.name
        return Path(path).name if self.dataset.name == "folder" else Path(path).stem

    @property
    def federated(self) -> bool:
        """Whether the clients are sites of a federation; then it is unknown which of them are honest."""
        return "federation" in (self.model_extra or {})

    @property
    def benign(self) -> str:
        """The noun for a client that is not known to be malicious."""
        return "client" if self.federated else "honest client"

    def digest(self) -> str:
        """Return the hash of the settings that affect the results."""
        return digest(self.model_dump(mode="json"))


def digest(settings: Mapping[str, Any], *more: str) -> str:
    """Return the SHA-256, in hex, of the settings that affect the results and of further texts."""
    content = json.dumps([_affecting(settings), *more], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()


def _affecting(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that affect the results.

    The path of the data does not. The share of malicious clients does not if there is no attack.
    """
    kept = {key: value for key, value in settings.items() if key not in FREE_TO_CHANGE}
    if isinstance(dataset := kept.get("dataset"), Mapping):
        kept["dataset"] = {key: value for key, value in dataset.items() if key != "path"}
    if isinstance(attack := kept.get("attack"), Mapping) and attack.get("name") == "none":
        kept.pop("malicious", None)
    return kept


def flattened(
    table: Mapping[str, Any], whole: Collection[str] = (), above: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield nested settings, `{"training": {"lr": 0.1}}`, as names with dots, `training.lr`, and values.

    Tables whose name is in `whole` are not flattened.
    """
    for key, value in table.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and name not in whole:
            yield from flattened(value, whole, f"{name}.")
        else:
            yield name, value


def overlay(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested settings of `base`, updated with those of `top`.

    If `top` has options where `base` has a name, they become options of that name. If `top` has another
    name, it replaces the name of `base` and its options.
    """
    merged = dict(base)
    for key, value in top.items():
        below: Any = merged.get(key)
        if key != "name" and isinstance(below, str) and isinstance(value, Mapping):
            below = _table(below)
        elif isinstance(below, Mapping) and "name" in below:
            value = _table(value)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            same = _normalised(value.get("name", below.get("name"))) == _normalised(below.get("name"))
            value = overlay(below, value) if same else value
        merged[key] = value
    return merged


def _table(value: Any) -> Any:
    return dict(value) if isinstance(value, Named) else to_table(value)


def _normalised(name: object) -> object:
    return plain(name) if isinstance(name, str) else name


def read_toml(path: Path | str) -> dict[str, Any]:
    """Read a TOML file; if that fails, raise an `InputError` of one line."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))  # editors add the mark of UTF-8
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", code="missing-file", field=str(path)
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {error}", code="bad-file", field=str(path)) from None


def to_toml(settings: Mapping[str, Any], table: str = "") -> str:
    """Return nested settings as TOML, with plain values before tables."""
    lines = [f"{_key(key)} = {_value(value)}" for key, value in settings.items() if not _is_table(value)]
    parts = ["\n".join(lines) + "\n"] if lines else []
    for key, value in settings.items():
        if _is_table(value):
            name = f"{table}.{_key(key)}" if table else _key(key)
            parts.append(f"[{name}]\n" + to_toml(value, name))
    return "\n".join(parts)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return "".join(
            c if c.isprintable() else f"\\U{ord(c):08x}" for c in json.dumps(value, ensure_ascii=False)
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(key)} = {_value(item)}' for key, item in value.items())}}}"
    raise TypeError(f"TOML has no form for {type(value).__name__}")
