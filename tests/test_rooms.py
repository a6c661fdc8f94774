"""The design, held: which room may import which, and everything that should be said is said."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedcap
from fedcap import aggregators, attacks, data, methods, models
from fedcap.data import partitions

SOURCE = Path(fedcap.__file__).parent
COMMON = {"registry", "randomness", "samples"}
ALLOWED = {
    "registry": set(),
    "randomness": set(),
    "samples": set(),
    "attacks": {"registry"},
    "aggregators": {"registry"},
    "training": COMMON,
    "data": COMMON,
    "models": COMMON,
    "methods": {*COMMON, "aggregators", "training"},
    "simulation": {*COMMON, "attacks", "aggregators", "methods", "training", "data", "models"},
    "report": {"samples", "simulation"},
    "experiments": {*COMMON, "simulation", "report", "training"},
    "progress": {"simulation"},
}


def imported_rooms(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "fedcap":
            names |= {f"fedcap.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("fedcap.")}


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_its_neighbours(room: str) -> None:
    files = (
        [SOURCE / f"{room}.py"] if (SOURCE / f"{room}.py").exists() else list((SOURCE / room).glob("*.py"))
    )
    assert files
    for file in files:
        assert imported_rooms(file) <= ALLOWED[room] | {room}, file


def test_every_room_is_listed() -> None:
    rooms = {
        entry.stem for entry in SOURCE.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").exists()
    }
    assert rooms - {"__init__", "cli"} == set(ALLOWED)


@pytest.mark.parametrize(
    "registry",
    [r.registry for r in (aggregators, attacks, data, methods, models, partitions)],
    ids=lambda registry: registry.kind,
)
def test_everything_named_has_a_line_that_fits_the_terminal(registry: object) -> None:
    for name in registry.names():  # type: ignore[attr-defined]
        line = registry.summary(name)  # type: ignore[attr-defined]
        assert 20 < len(line) <= 105, name


def test_public_surface_is_there() -> None:
    for name in fedcap.__all__:
        assert getattr(fedcap, name) is not None
