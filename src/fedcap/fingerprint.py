"""References and hashes of objects that users give from Python, such as an attack or a network.

A class or function that another process can import is written as `module:name`. Objects defined in a script,
a notebook or the body of a function cannot be imported. They are called `<MyAttack from Python>`, and a hash
of their options and their code, the fingerprint, shows whether an object is the same one in a later process.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, get_type_hints

_FROM_PYTHON = " from Python"

_DATACLASS_METHODS = frozenset(
    f"__{name}__" for name in ("init", "repr", "eq", "hash", "setattr", "delattr", "replace")
)
"""The methods that `dataclass` generates. They follow from the fields, which are hashed as well."""

_MOVED = (
    (
        "aggregators.columns",
        "matrix",
        "blocks order_statistics products>gram squared_distances distances_to weighted_sum mean_of",
    ),
    ("attacks.perturbation", "attacks.perturbation", "Geometry>Products"),
    (
        "attacks.scene",
        "attacks.base",
        "Scene>Geometry aim>target_mean harm>damage longest noise unit victims",
    ),
    ("attacks.wrapper", "attacks.base", "AttackWrapper build_inner inner_rows"),
    (
        "data.partitions.piles",
        "data.partitions.base",
        "Piles>ClassPools shuffled capped spread>even_counts samples_each",
    ),
    ("detection.look", "detection.view", "Look>RoundView"),
    ("detection.spread", "matrix", "deviations shortest_majority weighted_median evidence"),
    (
        "matrices",
        "matrix",
        "to_tensor to_floats column_blocks finite_rows weighted_mean Rows folded>sketch cosines",
    ),
    ("methods.dispatch", "methods.base", "Dispatch>Sent"),
    ("methods.global_model", "methods.fedavg", "GlobalModel GlobalState"),
    ("randomness", "rng", "derive derived_seed"),
    ("registry", "errors", "InputError UserCodeError RunError"),
    ("samples", "state", "Samples"),
    ("training.client", "training.task", "LocalClient LocalData Trained>ClientUpdate"),
    ("training.fit", "training.sgd", "SGD Learner fit"),
)
"""Public names that moved: the former module, the present module, and the names, with `former>present` for a
name that changed. A fingerprint hashes the former place, so results of users' own classes stay valid."""

_FORMER_PLACES = {
    f"fedcap.{present}:{name.rpartition('>')[2]}": f"fedcap.{former}:{name.partition('>')[0]}"
    for former, present, names in _MOVED
    for name in names.split()
}


# References


def reference(thing: Any) -> str | None:
    """Return the `module:name` by which another process imports a class or function; none if it cannot."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None
    return f"{module}:{name}" if found is thing and importable(module) else None


def importable(module: str) -> bool:
    """Return whether another process can import a module by its name."""
    if module == "__main__":
        return False
    path: Any = None
    for end in (*(dot.start() for dot in re.finditer(r"\.", module)), len(module)):
        spec = _find_spec(module[:end], path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return True


def _find_spec(module: str, path: Any) -> Any:
    """Return where a module would be imported from, without a look at the modules imported already."""
    finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next(filter(None, (finder.find_spec(module, path) for finder in finders)), None)


def label(thing: Any) -> str:
    """Return the name of an object that cannot be imported: `<MyAttack from Python>`."""
    thing = thing.func if isinstance(thing, partial) else thing
    named = thing if isinstance(thing, type | FunctionType | MethodType) else type(thing)
    return f"<{named.__name__.strip('<>')}{_FROM_PYTHON}>"


def is_label(name: object) -> bool:
    """Return whether a name in the settings of a run stands for an object given from Python."""
    return isinstance(name, str) and name.startswith("<") and _FROM_PYTHON in name


# Options as plain values


def written(name: str, thing: Any) -> dict[str, Any]:
    """Return a table of an object's name and all of its options, as plain values.

    If the name is a label, the table has the options that are plain, and the fingerprint of the object.
    """
    found = _options_of(thing)
    if is_label(name):
        found = {key: value for key, value in found.items() if is_plain(value)}
        found["hash"] = fingerprint(thing)
    return {"name": name, **found}


def _options_of(thing: Any) -> dict[str, Any]:
    """Return an object's options: the values of its method `settings`, if it has one, else its fields."""
    if callable(getattr(thing, "settings", None)):
        options = thing.settings()
    else:
        options = {field.name: getattr(thing, field.name) for field in fields(thing)}
    return {key: _as_table(value) for key, value in options.items()}


def _as_table(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def is_plain(value: Any) -> bool:
    """Return whether a value can be written to TOML and JSON and read back."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def is_same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two tables of `written` are plain and equal, after they are written and read back."""
    if not is_plain(first) or not is_plain(second):
        return False
    return bool(json.loads(json.dumps(first)) == json.loads(json.dumps(second)))


def accepts_word(cls: Any, option: str, word: str) -> bool:
    """Return whether an option accepts a word such as "nan", which TOML and Python read as a number."""
    from pydantic import TypeAdapter, ValidationError

    try:
        hint = get_type_hints(cls, include_extras=True).get(option, Any)
        TypeAdapter(hint).validate_python(word, strict=True)
    except ValidationError as error:  # it accepts other words: pydantic lists them in its message
        return all(fault["type"] == "literal_error" for fault in error.errors())
    except NameError:
        return False
    return hint is not Any


# Hashes


def source_digest(reference: str) -> str:
    """Return a hash of the file that defines `module:name`; if there is none, return the reference."""
    try:
        file = inspect.getsourcefile(importlib.import_module(reference.partition(":")[0]))
    except (ImportError, TypeError):
        file = None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else reference


def fingerprint(thing: Any) -> str:
    """Return a hash of an object's options and code. It does not depend on the object's address."""
    sha = hashlib.sha256()
    for part in _content(thing, {}):
        sha.update(part if isinstance(part, bytes) else part.encode())
        sha.update(b"\0")
    return sha.hexdigest()


def _content(thing: Any, seen: dict[int, Any]) -> Iterator[str | bytes]:
    """Yield the content of an object that its fingerprint hashes; skip objects in `seen`."""
    if thing is None or isinstance(thing, bool | int | float | complex | str | bytes):
        yield repr(thing)
    elif id(thing) in seen and not isinstance(thing, tuple):
        yield "again"
    else:
        seen[id(thing)] = thing  # the reference keeps the object alive, so its id is not used again
        yield from _parts(thing, seen)


def _parts(thing: Any, seen: dict[int, Any]) -> Iterator[str | bytes]:
    if isinstance(thing, type | FunctionType | MethodType | CodeType):
        yield from _code(thing, seen)
    elif type(thing).__name__.startswith("Uninitialized"):  # a weight of a lazy layer
        yield "no shape yet"
    elif hasattr(thing, "detach") and hasattr(thing, "numpy"):  # a tensor
        yield from _content(thing.detach().cpu().double().numpy(), seen)
    elif hasattr(thing, "tobytes") and hasattr(thing, "dtype"):  # an array
        yield from (f"{thing.dtype} {thing.shape}", thing.tobytes())
    elif hasattr(thing, "state_dict") and hasattr(thing, "modules"):  # a network
        yield _repr(thing)
        for kind in dict.fromkeys(map(type, thing.modules())):
            yield from _content(kind, seen)
        yield from _content(dict(thing.state_dict()), seen)
    elif is_dataclass(thing):
        yield from _content(type(thing), seen)
        yield from _content({field.name: getattr(thing, field.name) for field in fields(thing)}, seen)
    elif isinstance(thing, Mapping):
        for key, value in thing.items():
            yield from (_repr(key), *_content(value, seen))
    elif isinstance(thing, list | tuple):
        yield f"{len(thing)} items"
        for value in thing:
            yield from _content(value, seen)
    elif isinstance(thing, partial):
        yield from _content([thing.func, thing.args, thing.keywords], seen)
    else:
        yield thing.__name__ if isinstance(thing, ModuleType) else _repr(thing)


def _repr(thing: Any) -> str:
    """Return the `repr` of an object without its address."""
    return re.sub(" at 0x[0-9a-f]+", "", repr(thing))


def _code(thing: Any, seen: dict[int, Any]) -> Iterator[str | bytes]:
    """Yield the reference of a class or function if it has one, else its code."""
    found = reference(thing)
    if found is not None:
        yield _FORMER_PLACES.get(found, found)
    elif isinstance(thing, type):
        yield from _class_code(thing, seen)
    elif isinstance(thing, CodeType):
        yield from (thing.co_code, repr(thing.co_names), *_content(thing.co_consts, seen))
    else:
        yield from _function_code(getattr(thing, "__func__", thing), seen)


def _class_code(cls: type[Any], seen: dict[int, Any]) -> Iterator[str | bytes]:
    yield from (cls.__name__, *_content(cls.__bases__, seen))
    for name, value in sorted(vars(cls).items()):
        for inner in ("__func__", "fget", "func"):  # static and class methods, properties
            value = getattr(value, inner, value)
        if isinstance(value, FunctionType) and not (is_dataclass(cls) and name in _DATACLASS_METHODS):
            yield from (name, *_content(value, seen))
        elif is_plain(value) and not name.startswith("__"):
            yield f"{name}={value!r}"


def _function_code(function: Any, seen: dict[int, Any]) -> Iterator[str | bytes]:
    """Yield a function's source or code, its defaults, and the content of the names that it uses."""
    source = _source(function)
    yield from _content(function.__code__ if source is None else source, seen)
    yield from _content([function.__defaults__, function.__kwdefaults__], seen)
    try:
        used = inspect.getclosurevars(function)
    except ValueError:  # a name that has no value yet
        return
    yield from _content({**dict(sorted(used.globals.items())), **used.nonlocals}, seen)


def _source(function: FunctionType) -> str | None:
    """Return a function's source; none for a lambda, or for a function typed at a prompt."""
    try:
        return None if function.__name__ == "<lambda>" else inspect.getsource(function)
    except (OSError, TypeError):
        return None
