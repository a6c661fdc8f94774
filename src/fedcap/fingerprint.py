"""Things given from Python as objects: where they can be found again, and what is known of them.

A class or function that another process can import is written down as `module:name`. What lives in a script,
a notebook or a function's body cannot be; it is called `<MyAttack from Python>` there, and a hash of its
options and code tells whether it is the same one the next time.
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

FROM_PYTHON = " from Python"
GENERATED = frozenset(
    f"__{name}__" for name in ("init", "repr", "eq", "hash", "setattr", "delattr", "replace")
)
"""Methods that `dataclass` writes: the fields say all there is to know of them."""

FORMER = {
    f"fedcap.{new}:{name}": f"fedcap.{old}:{name}"
    for old, new, names in (
        (
            "aggregators.columns",
            "matrix",
            "blocks order_statistics comparators products squared_distances distances_to weighted_sum mean_of",
        ),
        ("attacks.perturbation", "attacks.base", "PerturbationAttack Geometry"),
        ("attacks.wrapper", "attacks.base", "AttackWrapper"),
        ("detection.look", "detection.view", "Look"),
        ("detection.spread", "matrix", "deviations shortest_majority weighted_median evidence"),
        (
            "matrices",
            "matrix",
            "to_tensor to_floats column_blocks finite_rows weighted_mean Rows folded cosines",
        ),
        ("methods.dispatch", "methods.base", "Dispatch"),
        ("methods.global_model", "methods.fedavg", "GlobalModel GlobalState"),
        ("registry", "errors", "InputError UserCodeError RunError"),
        ("samples", "state", "Samples"),
        ("training.client", "training.task", "LocalClient LocalData Trained"),
        ("training.fit", "training.sgd", "SGD Learner fit"),
    )
    for name in names.split()
}
"""The places of public names before modules were merged.

A fingerprint hashes the old place, so that results of users' own classes stay valid.
"""


def importable(module: str) -> bool:
    """Whether another process can import a module by its name."""
    if module == "__main__":
        return False
    inside: Any = None
    for end in (*(dot.start() for dot in re.finditer(r"\.", module)), len(module)):
        spec = _find(module[:end], inside)
        if spec is None:
            return False
        inside = spec.submodule_search_locations
    return True


def _find(module: str, inside: Any) -> Any:
    """Return where a module would be imported from, without looking at what is imported already."""
    finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next(filter(None, (finder.find_spec(module, inside) for finder in finders)), None)


def reference(thing: Any) -> str | None:
    """Return the `module:name` by which another process finds a class or function; none if it cannot."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    there = vars(sys.modules[module]).get(name) if module in sys.modules else None
    return f"{module}:{name}" if there is thing and importable(module) else None


def label(thing: Any) -> str:
    """Return what to call a thing that cannot be found again: `<MyAttack from Python>`."""
    thing = thing.func if isinstance(thing, partial) else thing
    named = thing if isinstance(thing, type | FunctionType | MethodType) else type(thing)
    return f"<{named.__name__.strip('<>')}{FROM_PYTHON}>"


def is_label(name: object) -> bool:
    """Whether a name in a run's settings stands for a thing that was given from Python."""
    return isinstance(name, str) and name.startswith("<") and FROM_PYTHON in name


def is_plain(value: Any) -> bool:
    """Whether a value can be written to TOML and JSON and read back."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def options_of(thing: Any) -> dict[str, Any]:
    """Return a built thing's options: what its `settings` say, if it has any, else its fields."""
    if callable(getattr(thing, "settings", None)):
        options = thing.settings()
    else:
        options = {field.name: getattr(thing, field.name) for field in fields(thing)}
    return {key: _nested(value) for key, value in options.items()}


def _nested(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def written(name: str, thing: Any) -> dict[str, Any]:
    """Return a built thing as its name and all of its options, as plain values.

    If it cannot be found by its name, the options that are plain are there, and a hash of the thing.
    """
    found = options_of(thing)
    if is_label(name):
        found = {key: value for key, value in found.items() if is_plain(value)}
        found["hash"] = fingerprint(thing)
    return {"name": name, **found}


def same(written: Mapping[str, Any], again: Mapping[str, Any]) -> bool:
    """Whether two things written down are equal, and can be read back."""
    if not is_plain(written) or not is_plain(again):
        return False
    return bool(json.loads(json.dumps(written)) == json.loads(json.dumps(again)))


def takes_word(cls: Any, option: str, word: str) -> bool:
    """Whether an option takes a word such as "nan", which TOML and Python read as a number."""
    from pydantic import TypeAdapter, ValidationError

    try:
        hint = get_type_hints(cls, include_extras=True).get(option, Any)
        TypeAdapter(hint).validate_python(word, strict=True)
    except ValidationError as error:  # one of several words, but not this one: pydantic says which
        return all(fault["type"] == "literal_error" for fault in error.errors())
    except NameError:
        return False
    return hint is not Any


def source_digest(reference: str) -> str:
    """Return a hash of the file that `module:name` is defined in, which changes when the file does.

    If no file is found, return the reference itself.
    """
    try:
        file = inspect.getsourcefile(importlib.import_module(reference.partition(":")[0]))
    except (ImportError, TypeError):
        file = None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else reference


def fingerprint(thing: Any) -> str:
    """Return a hash of what is known of a thing: its options and the code behind it, not where it lies."""
    sha = hashlib.sha256()
    for part in _known(thing, {}):
        sha.update(part if isinstance(part, bytes) else part.encode())
        sha.update(b"\0")
    return sha.hexdigest()


def _known(thing: Any, seen: dict[int, Any]) -> Iterator[str | bytes]:
    """Yield what tells a thing from another; what has been `seen` is not gone through again."""
    if thing is None or isinstance(thing, bool | int | float | complex | str | bytes):
        yield repr(thing)
    elif id(thing) in seen and not isinstance(thing, tuple):
        yield "again"
    else:
        seen[id(thing)] = thing  # kept, so that no other thing gets its id
        yield from _parts(thing, seen)


def _parts(thing: Any, seen: dict[int, Any]) -> Iterator[str | bytes]:
    if isinstance(thing, type | FunctionType | MethodType | CodeType):
        yield from _code(thing, seen)
    elif type(thing).__name__.startswith("Uninitialized"):  # a weight of a lazy layer
        yield "no shape yet"
    elif hasattr(thing, "detach") and hasattr(thing, "numpy"):  # a tensor
        yield from _known(thing.detach().cpu().double().numpy(), seen)
    elif hasattr(thing, "tobytes") and hasattr(thing, "dtype"):  # an array
        yield from (f"{thing.dtype} {thing.shape}", thing.tobytes())
    elif hasattr(thing, "state_dict") and hasattr(thing, "modules"):  # a network
        yield _text(thing)
        for kind in dict.fromkeys(map(type, thing.modules())):
            yield from _known(kind, seen)
        yield from _known(dict(thing.state_dict()), seen)
    elif is_dataclass(thing):
        yield from _known(type(thing), seen)
        yield from _known({field.name: getattr(thing, field.name) for field in fields(thing)}, seen)
    elif isinstance(thing, Mapping):
        for key, value in thing.items():
            yield from (_text(key), *_known(value, seen))
    elif isinstance(thing, list | tuple):
        yield f"{len(thing)} items"
        for value in thing:
            yield from _known(value, seen)
    elif isinstance(thing, partial):
        yield from _known([thing.func, thing.args, thing.keywords], seen)
    else:
        yield thing.__name__ if isinstance(thing, ModuleType) else _text(thing)


def _text(thing: Any) -> str:
    return re.sub(" at 0x[0-9a-f]+", "", repr(thing))


def _code(thing: Any, seen: dict[int, Any]) -> Iterator[str | bytes]:
    """Yield the code of a class or function: its name, if that can be imported, else what it does."""
    found = reference(thing)
    if found is not None:
        yield FORMER.get(found, found)
    elif isinstance(thing, type):
        yield from (thing.__name__, *_known(thing.__bases__, seen))
        for name, value in sorted(vars(thing).items()):
            for inner in ("__func__", "fget", "func"):  # static and class methods, properties
                value = getattr(value, inner, value)
            if isinstance(value, FunctionType) and not (is_dataclass(thing) and name in GENERATED):
                yield from (name, *_known(value, seen))
            elif is_plain(value) and not name.startswith("__"):
                yield f"{name}={value!r}"
    elif isinstance(thing, CodeType):
        yield from (thing.co_code, repr(thing.co_names), *_known(thing.co_consts, seen))
    else:
        function = getattr(thing, "__func__", thing)
        source = _source(function)
        yield from _known(function.__code__ if source is None else source, seen)
        yield from _known([function.__defaults__, function.__kwdefaults__], seen)
        try:
            used = inspect.getclosurevars(function)
        except ValueError:  # a name that has no value yet
            return
        yield from _known({**dict(sorted(used.globals.items())), **used.nonlocals}, seen)


def _source(function: FunctionType) -> str | None:
    """Return a function's text; none if it was typed into a prompt, or shares its lines with others."""
    try:
        return None if function.__name__ == "<lambda>" else inspect.getsource(function)
    except (OSError, TypeError):
        return None
