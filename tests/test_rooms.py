"""The design, held: which room may import which, no module in a circle, and everything named has its line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedcap
from fedcap import aggregators, attacks, data, detection, methods, models, trackers
from fedcap.data import partitions

SOURCE = Path(fedcap.__file__).parent
FLOOR = {
    "registry",
    "choices",
    "children",
    "objects",
    "randomness",
    "samples",
    "files",
    "matrices",
    "state",
    "words",
}
"""What every room stands on; these import nothing but each other."""
MAY_IMPORT: dict[str, set[str]] = {
    "attacks": set(),
    "aggregators": set(),
    "detection": set(),
    "training": set(),
    "data": set(),
    "models": set(),
    "records": set(),
    "trackers": {"records"},
    "methods": {"aggregators", "detection", "training"},
    "simulation": {
        "attacks",
        "aggregators",
        "detection",
        "training",
        "data",
        "models",
        "records",
        "trackers",
        "methods",
    },
    "experiments": {"simulation", "records", "report"},
    "report": {"records"},
    "federation": {"methods", "training", "data", "models", "records", "trackers"},
}
"""The table of rooms: what each may import besides the floor. The command line may import anything."""
ANYTHING = {"cli", "__init__", "__main__"}
MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def module_name(path: Path) -> str:
    parts = ["fedcap", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path) for path in MODULES}


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(path: Path, only_at_top: bool = False) -> set[str]:
    """Return the modules of ours that a file imports, wherever in it; those for type checks do not count."""
    tree = ast.parse(path.read_text())
    body = [node for node in tree.body if not is_type_checking(node)]
    nodes = body if only_at_top else [inner for node in body for inner in ast.walk(node)]
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inside & NAMES) or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & NAMES


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    room = room_of(path)
    if room in ANYTHING:
        return
    allowed = FLOOR | {room} | MAY_IMPORT.get(room, set())
    rooms = {name.split(".")[1] for name in imports(path) if name != "fedcap"}
    assert rooms <= allowed


def test_every_room_is_in_the_table() -> None:
    rooms = {room_of(path) for path in MODULES}
    assert rooms >= FLOOR
    assert rooms - ANYTHING <= FLOOR | MAY_IMPORT.keys()


def test_no_module_imports_itself_through_others() -> None:
    edges = {module_name(path): imports(path) - {module_name(path)} for path in MODULES}
    packages = {module_name(path) for path in MODULES if path.name == "__init__.py"}
    # A package's own list of what it offers is no reason for a circle: look through it.
    edges = {name: found - packages for name, found in edges.items() if name not in packages}
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " → ".join([*way[way.index(name) :], name])
        if name not in done:
            for other in sorted(edges[name]):
                visit(other, (*way, name))
            done.add(name)

    for name in edges:
        visit(name, ())


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_no_file_is_longer_than_a_reader_will_finish(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 260


def test_no_test_file_is_over_400_lines() -> None:
    for path in Path(__file__).parent.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path.name


@pytest.mark.parametrize(
    "registry",
    [
        *(
            room.registry
            for room in (aggregators, attacks, data, detection, methods, models, partitions, trackers)
        ),
        detection.policies,
    ],
    ids=lambda registry: registry.kind,
)
def test_everything_named_has_a_line_that_fits_the_terminal(registry: object) -> None:
    assert registry.names()  # type: ignore[attr-defined]
    for name in registry.names():  # type: ignore[attr-defined]
        line = registry.summary(name)  # type: ignore[attr-defined]
        assert 20 < len(line) <= 105, name


def test_public_surface_is_there() -> None:
    for name in fedcap.__all__:
        assert getattr(fedcap, name) is not None
    assert "norm" in fedcap.detectors.names()
