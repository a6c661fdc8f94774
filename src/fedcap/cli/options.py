"""The options of a named thing, in words: type, default, and the line that stands under each in the code."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
import types
from dataclasses import MISSING, Field, dataclass, fields
from itertools import pairwise
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

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
    """Return the options of a class, which are the fields of its dataclass; its own come first."""
    if not hasattr(cls, "__dataclass_fields__"):
        return []
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError:  # a user's own class whose types are not there at run time
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
    """Return how far up among the bases of a class a field stands."""
    return next(at for at, base in enumerate(cls.__mro__) if name in inspect.get_annotations(base))


def _lines(cls: type[Any]) -> dict[str, str]:
    """Return the docstring under each field of a class and of its bases; a subclass has the last word."""
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
    """Return a statement that is a string alone, on one line; empty if it is anything else."""
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
    """Return alternatives in words; a name or a table of name and options is how things are chosen."""
    kinds = [get_origin(one) or one for one in inside]
    if str in kinds and dict in kinds:
        # From Python it may be an object or a class, too; here it is written.
        rest = [in_words(one) for one, kind in zip(inside, kinds, strict=True) if kind in (list, tuple)]
        return " or ".join(["name or table", *rest])
    return " or ".join(dict.fromkeys(map(in_words, inside)))


def _bounds(notes: tuple[Any, ...]) -> list[str]:
    """Return the limits of a number in words."""
    limits = [limit for note in notes for limit in (note, *getattr(note, "metadata", ()))]
    return [
        f"{said} {getattr(limit, bound):g}"
        for limit in limits
        for bound, said in BOUNDS.items()
        if isinstance(getattr(limit, bound, None), int | float)
    ]
