"""`fedcap list`: everything that has a name, one kind of it, or one thing with all of its options."""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import sys
import textwrap
import types
from collections.abc import Sequence
from dataclasses import MISSING, Field, asdict, dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from fedcap.cli.common import AsJson, bold, echo, print_json, print_table
from fedcap.errors import InputError, plural

if TYPE_CHECKING:
    from fedcap.data import Source
    from fedcap.registry import Registry

DATA = "data"
"""The name under which `fedcap list` shows the data sets that are installed."""
NEEDS_PATH = ("arrays", "csv", "folder", "npz")
"""The sources for the user's data, which is not installed."""
USES = {
    "method": "fedcap run --method {name}",
    "attack": "fedcap run --attack {name}",
    "aggregator": "fedcap run --method fedavg --rule {name}",
    "detector": "fedcap run --set method.detectors={name}",
    "policy": "fedcap run --set method.policy={name}",
    "data set": "fedcap run --dataset {name}",
    "partition": "fedcap run --set dataset.partition={name}",
    "model": "fedcap run --model {name}",
    "tracker": "fedcap run --track {name}",
}
"""A command that uses a thing of each kind."""
PLACES = {
    "method": "method",
    "attack": "attack",
    "aggregator": "method.rule",
    "policy": "method.policy",
    "data set": "dataset",
    "partition": "dataset.partition",
}
"""The setting that has the options of a thing of each kind."""
OWN = {"csv": "FILE.csv", "npz": "FILE.npz", "folder": "FOLDER"}
"""What is given instead of the name of a source of the user's data."""


@dataclass(frozen=True)
class Explanation:
    """One named thing: what it is, its options and a command."""

    kind: str
    name: str
    aliases: Sequence[str]
    summary: str
    about: str
    """The docstring of its module: what it does, its formula, its reference."""
    options: Sequence[Option]
    notes: Sequence[str]
    """The settings that it brings."""
    use: str
    """A command that uses it."""


def registries() -> dict[str, Registry[Any]]:
    """Return the registries of everything that has a name, by kind."""
    from fedcap import aggregators, attacks, data, detection, methods, models, trackers
    from fedcap.data import partitions

    return {
        "methods": methods.registry,
        "attacks": attacks.registry,
        "aggregators": aggregators.registry,
        "detectors": detection.registry,
        "policies": detection.policies,
        "data sets": data.registry,
        "partitions": partitions.registry,
        "models": models.registry,
        "trackers": trackers.registry,
    }


def list_(
    name: Annotated[
        str | None,
        typer.Argument(help="A name, alias or module:Class; a kind such as attacks; or data. [default: all]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List methods, attacks, data sets and so on, or explain one.

    fedcap list data shows which data sets are installed, and where.
    """
    if name == DATA:
        _list_data(as_json)
        return
    kinds = registries()
    if name is not None and name not in kinds:
        found = explanations(name)
        if as_json:
            print_json([asdict(explanation) for explanation in found])
        else:
            echo("\n\n".join(_text(explanation) for explanation in found))
        return
    chosen = kinds if name is None else {name: kinds[name]}
    lines = {kind: {one: r.summary(one) for one in r.names()} for kind, r in chosen.items()}
    if as_json:
        print_json(lines)
        return
    width = max(len(one) for names in lines.values() for one in names)
    for kind, names in lines.items():
        echo(bold(kind))
        for one, line in names.items():
            echo(f"  {one:<{width}}  {line}")


def _list_data(as_json: bool) -> None:
    """Print the data sets, and which of them are installed."""
    from fedcap.data.files import data_folders
    from fedcap.report.tables import Table

    found = [{"name": name, **installation(source)} for name, source in installable().items()]
    if as_json:
        print_json({"folders": [str(folder) for folder in data_folders()], "datasets": found})
        return
    rows = [[row["name"], row["here"], row["where"]] for row in found]
    print_table(Table(("data set", "installed", "where"), rows), numbers=False)
    echo(f"Looked in {' and '.join(map(str, data_folders()))} (FEDCAP_DATA names another folder).")
    echo("Your own data: --dataset FILE.csv, FILE.npz, or a folder of images by class or by client.")


def installable() -> dict[str, Source]:
    """Return the data sets that have a name and can be installed."""
    from fedcap.data import make, names

    return {name: make(name) for name in names() if name not in NEEDS_PATH}


def installation(source: Source) -> dict[str, str]:
    """Return whether a data set is installed, and where, without reading it."""
    files = source.files()
    if files is None:
        return {"here": "embedded", "where": "comes with fedcap"}
    if not files:
        return {"here": "no", "where": ""}
    size = sum(path.stat().st_size for path in files)
    return {"here": f"{plural(len(files), 'file')}, {size / 1e6:,.0f} MB", "where": str(files[0].parent)}


def explanations(name: str) -> list[Explanation]:
    """Return all things of a name: several kinds may have it."""
    known_registries = registries().values()
    found = [registry for registry in known_registries if _has(registry, name)]
    if found:
        return [_explanation(registry, registry.resolve(name)) for registry in found]
    if ":" in name:
        from fedcap.registry import load

        load(name)  # raises the reason if it cannot be imported
        raise InputError(
            f"{name!r} is not a method, attack, aggregator, detector, policy or data set",
            code="wrong-class",
            field=name,
        )
    known = {
        spelled
        for registry in known_registries
        for one in registry.names()
        for spelled in registry.spellings(one)
    }
    close = difflib.get_close_matches(name.lower(), sorted(known), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    raise InputError(
        f"nothing has the name {name!r}: {hint}(fedcap list shows all)", code="unknown-name", field="name"
    )


def _has(registry: Registry[Any], name: str) -> bool:
    try:
        registry.get(name)
    except InputError:
        return False
    return True


def _explanation(registry: Registry[Any], name: str) -> Explanation:
    cls: Any = registry.get(name)
    options = options_of(cls)
    return Explanation(
        registry.kind,
        name,
        registry.spellings(name)[1:],
        registry.summary(name),
        sys.modules[cls.__module__].__doc__ or "",
        options,
        _notes(registry.kind, name, cls),
        _use(registry.kind, name, options),
    )


def _notes(kind: str, name: str, cls: Any) -> list[str]:
    """Return the default settings on a data set, or those of a method on each data set."""
    from fedcap.simulation.settings import PRESETS

    if kind == "method":
        there = {dataset: methods[name] for dataset, methods in PRESETS.items() if name in methods}
        return [f"on {dataset}: {_settings(options)}" for dataset, options in there.items()]
    if kind == "data set":
        return [f"defaults: {_settings({'model': cls.model, **cls.suggest({})})}"]
    return []


def _settings(settings: Any, place: str = "") -> str:
    parts = [
        _settings(value, f"{place}{key}.") if isinstance(value, dict) else f"{place}{key}={value}"
        for key, value in settings.items()
    ]
    return ", ".join(parts)


def _use(kind: str, name: str, options: Sequence[Option]) -> str:
    if name == "arrays":
        return "fedcap.Experiment(dataset=(x, y)).run()"
    given = OWN.get(name, name) if kind == "data set" else name
    line = USES[kind].format(name=given)
    chosen = next((option for option in options if option.numeric), None)
    if chosen is None or kind not in PLACES:
        return line
    return f"{line} --set {PLACES[kind]}.{chosen.name}={chosen.default}"


def _text(explanation: Explanation) -> str:
    """Return an explanation as text."""
    heading = bold(explanation.name) + f" · {explanation.kind}"
    also = f" · also {', '.join(explanation.aliases)}" if explanation.aliases else ""
    parts = [f"{heading}{also}\n{explanation.summary}", explanation.about.strip()]
    if explanation.options:
        lines = [f"  {o.name} ({o.type}; default {o.default})\n      {o.line}" for o in explanation.options]
        parts.append("\n".join([bold("options"), *lines]))
    return "\n\n".join([*parts, "\n".join([*explanation.notes, explanation.use])])


# The options of one thing

WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    dict: "table",
    type(None): "none",
    Any: "anything",
}
BOUNDS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}


@dataclass(frozen=True)
class Option:
    """One option of a named thing."""

    name: str
    type: str
    default: str
    line: str
    numeric: bool
    """Whether its default is a number."""


def options_of(cls: type[Any]) -> list[Option]:
    """Return the options of a class: the fields of the dataclass, those of its bases last."""
    if not hasattr(cls, "__dataclass_fields__"):
        return []
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError:  # a user's class whose types do not exist at run time
        hints = {}
    lines = _lines(cls)
    return [
        Option(
            field.name,
            in_words(hints.get(field.name, field.type)),
            _default(field),
            lines.get(field.name, ""),
            isinstance(field.default, int | float) and not isinstance(field.default, bool),
        )
        for field in sorted(fields(cls), key=lambda field: _depth(cls, field.name))
        if field.init
    ]


def _depth(cls: type[Any], name: str) -> int:
    """Return the place of the first base of a class that has a field."""
    return next(at for at, base in enumerate(cls.__mro__) if name in inspect.get_annotations(base))


def _lines(cls: type[Any]) -> dict[str, str]:
    """Return the docstring under each field of a class and its bases; a subclass's replaces its base's."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):  # defined in a notebook, or not in Python
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for statement, after in pairwise(body):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                text = _string(after)
                found |= {statement.target.id: text} if text else {}
    return found


def _string(statement: ast.stmt) -> str:
    """Return a statement that is a string, on one line; empty if it is anything else."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    text = value.value if isinstance(value, ast.Constant) else ""
    return " ".join(text.split()) if isinstance(text, str) else ""


def _default(field: Field[Any]) -> str:
    value = field.default
    if value is MISSING and field.default_factory is not MISSING:
        value = field.default_factory()
    if value is MISSING:
        return "required"
    return "none" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def in_words(hint: Any) -> str:
    """Return a type in words: "number ≥ 0"."""
    if isinstance(hint, str):
        return hint
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return f"{in_words(inside[0])} {' and '.join(_bounds(inside[1:]))}".rstrip()
    if origin is Literal:
        return " or ".join(json.dumps(choice, ensure_ascii=False) for choice in inside)
    if origin in (Union, types.UnionType):
        return _choice(inside)
    if origin in (tuple, list):
        return f"list ({in_words(inside[0])})" if inside else "list"
    return WORDS.get(origin or hint, getattr(hint, "__name__", str(hint)))


def _choice(inside: tuple[Any, ...]) -> str:
    """Return alternatives in words; a named thing is given as a name, or as a table of name and options."""
    kinds = [get_origin(one) or one for one in inside]
    if str in kinds and dict in kinds:
        # Python also takes an object or a class.
        rest = [in_words(one) for one, kind in zip(inside, kinds, strict=True) if kind in (list, tuple)]
        return " or ".join(["name or table", *rest])
    return " or ".join(dict.fromkeys(map(in_words, inside)))


def _bounds(notes: tuple[Any, ...]) -> list[str]:
    """Return the limits of a number in words."""
    limits = [limit for note in notes for limit in (note, *getattr(note, "metadata", ()))]
    return [
        f"{sign} {getattr(limit, bound):g}"
        for limit in limits
        for bound, sign in BOUNDS.items()
        if isinstance(getattr(limit, bound, None), int | float)
    ]
