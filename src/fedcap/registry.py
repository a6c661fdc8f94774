"""Registries: every attack, rule, method, model, partition, data set and tracker is found by name.

A class registers itself with a decorator and states its options as dataclass fields. `Registry.make` looks a
name up, builds the class, and checks the options against the types of the fields. Names have aliases and
ignore case; `module:Class` names a class of the user. The error for an unknown name or option suggests the
nearest ones.

A choice is a name, a table of name and options, or a word that stands for such a table: `bucketing(median)`,
`fedcap(alpha=10, phi=0.1)`. An argument without a key is the inner rule of a wrapper and may have options of
its own. Values are TOML or text. Command-line flags and tables use words.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
import pkgutil
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Generic, TypeVar, cast

from fedcap import fingerprint
from fedcap.errors import InputError, UserCodeError, invalid, nearest, validation_message

GIVEN = "given from Python"
"""The key, in a table, of an object that cannot be built again from its name and options."""

_T = TypeVar("_T")
_Class = TypeVar("_Class", bound="type[Any]")
_WORD = re.compile(r"\s*([\w.:-]+)\s*\((.*)\)\s*", re.DOTALL)
_OPTION = re.compile(r"\s*(\w+)\s*=(.*)", re.DOTALL)
_INNER = re.compile(r"\s*[A-Za-z][\w.:-]*\s*(\(.*\))?\s*", re.DOTALL)


def split(text: str) -> list[str]:
    """Split a list at its commas, except at those in brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        depth += (not quote) * ((letter in "([{") - (letter in ")]}"))
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def parse_value(text: str) -> Any:
    """Return the value of a TOML literal; return other text unchanged."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def parse_word(text: str) -> dict[str, Any]:
    """Return a word as a table of name and options; other text is a name without options."""
    found = _WORD.fullmatch(text)
    if found is None:
        return {"name": text}
    table: dict[str, Any] = {"name": found[1]}
    for part in split(found[2]):
        if option := _OPTION.fullmatch(part):
            table[option[1]] = parse_value(option[2])
        elif _INNER.fullmatch(part) and "rule" not in table:
            table["rule"] = part
        else:
            return {"name": text}
    return table


def to_table(choice: Any) -> Any:
    """Return a name or a word as a table, `{"name": "median"}`; return other choices unchanged."""
    return parse_word(choice) if isinstance(choice, str) else choice


def spelling(choice: Any) -> str:
    """Return the word for a choice: the inverse of `to_table`."""
    if not isinstance(choice, Mapping) or "name" not in choice:
        return choice if isinstance(choice, str) else json.dumps(choice, ensure_ascii=False, default=str)
    options = dict(choice)
    name = str(options.pop("name"))
    inner = [spelling(options.pop("rule"))] if "rule" in options else []
    parts = [*inner, *(f"{key}={spelling(option)}" for key, option in options.items())]
    return f"{name}({', '.join(parts)})" if parts else name


def plain(name: str) -> str:
    """Return a name in the form in which names are compared: in lower case, with hyphens."""
    return name.lower().replace("_", "-")


def as_table(choice: Any, kind: str = "choice") -> dict[str, Any]:
    """Return a name, a word or a table as a table; raise an `InputError` for anything else."""
    table = to_table(choice)
    if isinstance(table, Mapping) and isinstance(table.get("name"), str):
        return dict(table)
    raise InputError(
        f'{kind} must be a name, or a table with a name and options, such as {{name = "…"}} (got {choice!r})',
        code="bad-value",
        field=kind,
    )


def load(reference: str) -> Any:
    """Import `module:attribute`, the form in which users name their own classes and functions."""
    module, _, attribute = reference.partition(":")
    if not module or not attribute:
        raise InputError(f"{reference!r} is not of the form module:name", code="bad-value")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(
            f"cannot import {module!r} of {reference!r}: {error}", code="cannot-import", field=module
        ) from error
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise UserCodeError(f"your module {module} failed on import: {what}") from error
    try:
        return getattr(found, attribute)
    except AttributeError:
        public = (name for name in vars(found) if not name.startswith("_"))
        raise InputError(
            f"{module!r} has no {attribute!r}: {nearest(attribute, public)}",
            code="unknown-name",
            field=module,
        ) from None


@cache
def _adapter(cls: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


class Registry(Generic[_T]):
    """The classes of one kind, such as "attack", by name. The fields of a class are its options."""

    def __init__(self, kind: str, base: type[Any], package: str | None = None) -> None:
        self.kind = kind
        self._base = base
        self._package = package
        self._classes: dict[str, Callable[..., _T]] = {}
        self._aliases: dict[str, str] = {}

    def register(self, name: str, *aliases: str) -> Callable[[_Class], _Class]:
        """Register the decorated class under a name and its aliases."""

        def decorate(cls: _Class) -> _Class:
            if name in self._classes:
                raise ValueError(f"two {self.kind}s are called {name!r}")
            self._classes[name] = cls
            self._aliases |= {alias.lower(): name for alias in (name, *aliases)}
            return cls

        return decorate

    def _discover(self) -> None:
        """Import every module of the package once. Its classes then register themselves."""
        if self._package is None:
            return
        package = importlib.import_module(self._package)
        self._package = None
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")

    def names(self) -> list[str]:
        """Return all names, in the order of their files."""
        self._discover()
        return list(self._classes)

    def resolve(self, name: str) -> str:
        """Return the registered name for a name or alias; return `module:Class` unchanged."""
        if not isinstance(name, str):
            raise InputError(
                f"the name of a {self.kind} is a string (got {name!r})", code="bad-value", field=self.kind
            )
        if fingerprint.is_label(name):
            raise InputError(
                f"the {self.kind} of this run, {name}, was given from Python and is not stored in its"
                " directory: continue it from Python, with the same object, by Experiment(…).run(out=…)",
                code="given-from-python",
                field=self.kind,
            )
        if ":" in name:
            return name
        self._discover()
        try:
            return self._aliases[plain(name)]
        except KeyError:
            raise InputError(
                f"unknown {self.kind} {name!r}: {nearest(name.lower(), self._classes)}",
                code="unknown-name",
                field=self.kind,
            ) from None

    def get(self, name: str) -> Callable[..., _T]:
        """Return the class with this name."""
        name = self.resolve(name)
        if ":" not in name:
            return self._classes[name]
        found = load(name)
        if not (isinstance(found, type) and issubclass(found, self._base) and is_dataclass(found)):
            raise InputError(
                f"{name!r} is not a dataclass derived from {self._base.__name__}",
                code="wrong-class",
                field=self.kind,
            )
        if inspect.isabstract(found):
            raise InputError(
                f"{name!r} is abstract: it lacks {', '.join(sorted(found.__abstractmethods__))}",
                code="wrong-class",
                field=self.kind,
            )
        return cast("Callable[..., _T]", found)

    def make(self, name: str, **options: Any) -> _T:
        """Build the class with this name; the options are checked against the types of its fields."""
        from pydantic import ValidationError

        if GIVEN in options:
            given = options.pop(GIVEN)
            if options:
                raise InputError(
                    f"{self.kind} {name} is an object: set {', '.join(options)} in Python", code="bad-option"
                )
            return cast("_T", given)
        cls = self.get(name)
        known = self.options(name)
        for key, value in options.items():
            if key not in known:
                raise InputError(
                    f"{self.kind} {name!r} has no option {key!r}: {nearest(key, known)}",
                    code="unknown-option",
                    field=key,
                )
            if isinstance(value, float) and not math.isfinite(value):
                if not fingerprint.accepts_word(cls, key, str(value)):
                    raise InputError(
                        f"{self.kind} {name!r}: {key} should be a finite number (got {value})",
                        code="bad-value",
                        field=key,
                    )
                options[key] = str(value)
        try:
            return cast("_T", _adapter(cls).validate_python(options))
        except ValidationError as error:
            raise invalid(error, f"{self.kind} {name!r}: {validation_message(error)}") from None

    def build(self, choice: Any) -> _T:
        """Build a choice; return an object unchanged."""
        if isinstance(choice, self._base):
            return cast("_T", choice)
        options = as_table(self.table(choice), self.kind)
        return self.make(options.pop("name"), **options)

    def named(self, choice: Any) -> tuple[str, _T]:
        """Build a choice; return its name (registered, `module:Class` or a label) and the object."""
        table = as_table(self.table(choice), self.kind)
        name = table["name"] if GIVEN in table else self.resolve(table["name"])
        return name, self.build(table)

    def canonical(self, choice: Any) -> dict[str, Any]:
        """Return a choice as a table of its registered name and all of its options."""
        return fingerprint.written(*self.named(choice))

    def table(self, choice: Any) -> Any:
        """Return an object or a class, or a table with one as its name, as a table with a string as its name.

        A class is replaced by its name. An object is replaced by its name and options if another process can
        build it again from them; else the table holds the object. Other choices are returned unchanged.
        """
        has_name = isinstance(choice, Mapping) and "name" in choice
        options = {key: value for key, value in choice.items() if key != "name"} if has_name else {}
        thing = choice["name"] if has_name else choice
        if isinstance(thing, str) and thing.startswith("__main__:"):
            thing = self.get(thing)
        if isinstance(thing, type) and issubclass(thing, self._base):
            name = self._name_of(thing)
            if name is not None:
                return {"name": name, **options}
            arguments = {
                key: options.pop(key) for key in inspect.signature(thing).parameters if key in options
            }
            try:
                thing = thing(**arguments)
            except TypeError as error:
                raise InputError(f"{self.kind} {fingerprint.label(thing)}: {error}") from None
        return {**self._table_of(thing), **options} if isinstance(thing, self._base) else choice

    def _name_of(self, cls: type[Any]) -> str | None:
        """Return the name by which another process finds a class; none if it cannot."""
        self._discover()
        if cls.__module__.partition(".")[0] == "fedcap":
            for name, known in self._classes.items():
                if known is cls:
                    return name
        return fingerprint.reference(cls) if is_dataclass(cls) else None

    def _table_of(self, thing: Any) -> dict[str, Any]:
        """Return a table from which an object can be built again; if there is none, one that holds it."""
        name = self._name_of(type(thing))
        if name is not None:
            options = {field.name: getattr(thing, field.name) for field in fields(thing) if field.init}
            table = {"name": name, **{key: value for key, value in options.items() if value is not None}}
            try:
                if fingerprint.is_same(
                    fingerprint.written(name, self.build(table)), fingerprint.written(name, thing)
                ):
                    return table
            except Exception:  # a user's class may raise anything; for classes of fedcap it is a defect
                if ":" not in name:
                    raise
        return {"name": fingerprint.label(thing), GIVEN: thing}

    def options(self, name: str) -> list[str]:
        """Return the names of the options of the class with this name."""
        return list(inspect.signature(self.get(name)).parameters)

    def spellings(self, name: str) -> list[str]:
        """Return the registered name, followed by its aliases."""
        name = self.resolve(name)
        return [name, *(alias for alias, target in self._aliases.items() if target == name and alias != name)]

    def summary(self, name: str) -> str:
        """Return the first line of the docstring of the class with this name."""
        return (inspect.getdoc(self.get(name)) or "").partition("\n")[0]
