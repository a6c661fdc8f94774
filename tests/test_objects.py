"""The description of an object: the same in all processes, another one if options or code differ."""

from __future__ import annotations

import hashlib
import sys
import types
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from python_tools import Louder, linear
from torch import nn

from fedcap import matrix
from fedcap.data.partitions import ClassPools
from fedcap.fingerprint import fingerprint, importable, is_label, is_plain, label, reference

BODY = """
from dataclasses import dataclass

step = 2

def helper(x):
    return x + step

@dataclass(frozen=True)
class Thing:
    size: int = 1
    limit = 5

    def act(self, x):
        return helper(x) * self.size

    @property
    def double(self):
        return 2 * self.size
"""


def thing(text: str = BODY, **options: Any) -> Any:
    """Return a `Thing` as another session would define it."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(text, space)
    return space["Thing"](**options)


def test_the_same_text_and_options_have_the_same_hash() -> None:
    assert fingerprint(thing()) == fingerprint(thing()) == fingerprint(thing(size=1))
    assert len(fingerprint(thing())) == 64


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* self.size", "+ self.size"),
        ("limit = 5", "limit = 6"),
        ("step = 2", "step = 3"),
        ("x + step", "x - step"),
        ("return 2 * self.size", "return 3 * self.size"),
        ("class Thing:", "class Thing(dict):"),
        ("size: int", "length: int = 0\n    size: int"),
    ],
)
def test_a_change_anywhere_in_the_code_gives_another(old: str, new: str) -> None:
    assert old in BODY
    assert fingerprint(thing(BODY.replace(old, new))) != fingerprint(thing())


@dataclass(frozen=True)
class Holder:
    value: Any = None
    more: list[Any] = field(default_factory=list)


def power(x: float, exponent: float) -> float:
    return x**exponent


@pytest.mark.parametrize(
    "values",
    [
        (1, 2, 1.5, True, "1", None),
        ([1, 2], [2, 1], [1, [2]], [1]),
        ({"a": 1}, {"a": 2}, {"b": 1}, {"a": {"a": 1}}),
        (torch.zeros(3), torch.ones(3), torch.zeros(1, 3)),
        (np.zeros(3), np.ones(3), np.zeros(3, dtype=np.int32)),
        (partial(power, exponent=2), partial(power, exponent=3), power),
        (lambda x: x + 1, lambda x: x + 2),
        (nn.Linear, nn.ReLU),
    ],
)
def test_different_options_have_different_hashes(values: tuple[Any, ...]) -> None:
    assert len({fingerprint(Holder(value)) for value in values}) == len(values)
    assert len({fingerprint(Holder(more=[value])) for value in values}) == len(values)


def test_what_a_function_closes_over_counts() -> None:
    def closing(number: int) -> Any:
        return lambda: number

    assert fingerprint(closing(1)) == fingerprint(closing(1)) != fingerprint(closing(2))


def test_a_network_is_its_layers_and_its_weights() -> None:
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    second = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    second.load_state_dict(first.state_dict())
    again = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    assert fingerprint(again) != fingerprint(first)
    again.load_state_dict(first.state_dict())
    assert fingerprint(again) == fingerprint(first)
    assert fingerprint(second) != fingerprint(first)


def test_things_that_hold_each_other_come_to_an_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert fingerprint(loop) == fingerprint(loop)
    space: dict[str, Any] = {}
    exec("def f(): return g\ndef g(): return f", space)
    assert fingerprint(space["f"]) != fingerprint(space["g"])


@pytest.mark.parametrize(
    ("thing", "found"),
    [
        (Louder, "python_tools:Louder"),
        (linear, "python_tools:linear"),
        (nn.Linear, "torch.nn.modules.linear:Linear"),
        (lambda: 3, None),
        (nn.Linear.forward, None),
        (partial(power, 2), None),
        (3, None),
        (Louder(), None),
    ],
)
def test_a_reference_is_there_for_what_another_process_can_import(thing: Any, found: str | None) -> None:
    assert reference(thing) == found


def test_a_module_that_has_no_file_cannot_be_imported_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType("made_up")
    exec("class Thing: pass", vars(made))
    monkeypatch.setitem(sys.modules, "made_up", made)
    assert made.Thing.__module__ == "made_up"
    assert not importable("made_up")
    assert reference(made.Thing) is None
    assert not importable("__main__")
    assert not importable("fedcap.no_such_module")
    assert importable("fedcap.fingerprint")
    assert importable("sys")


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (Holder(), "Holder"),
        (Holder, "Holder"),
        (power, "power"),
        (partial(power, 2), "power"),
        (lambda: 3, "lambda"),
    ],
)
def test_what_cannot_be_found_has_a_label(thing: Any, name: str) -> None:
    assert label(thing) == f"<{name} from Python>"
    assert is_label(label(thing))
    assert not is_label("my_module:from Python")


def test_plain_values_are_those_that_files_can_hold() -> None:
    assert is_plain({"a": [1, 2.5, "x", None, (True, {})]})
    assert not is_plain({1: 2})
    assert not is_plain([torch.zeros(1)])
    assert not is_plain(np.float64(3))


@pytest.mark.parametrize(
    ("moved", "former"),
    [
        (matrix.gram, "fedcap.aggregators.columns:products"),
        (matrix.sketch, "fedcap.matrices:folded"),
        (ClassPools, "fedcap.data.partitions.piles:Piles"),
    ],
)
def test_the_hash_of_a_renamed_name_is_that_of_its_former_place(moved: Any, former: str) -> None:
    assert fingerprint(moved) == hashlib.sha256(former.encode() + b"\0").hexdigest()
