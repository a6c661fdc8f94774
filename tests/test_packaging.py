"""What a user installs: everything that the package imports is declared, and the tools' versions fit."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
DISTRIBUTION = {"sklearn": "scikit-learn", "PIL": "pillow"}
OPTIONAL = {"flwr", "cryptography", "httpx", "ray", "optuna", "pandas", "pyarrow", "mlflow", "tensorboard"}
"""What only some commands need; these say so where it is missing."""


def imported() -> set[str]:
    """Return the top-level names of all modules that the package imports, anywhere in it."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"fedcap"}


def declared() -> dict[str, str]:
    """Return what is declared, by name: the range of versions."""
    parts = (re.match(r"([\w-]+)(.*)", line) for line in PROJECT["dependencies"])
    return {part[1]: part[2] for part in parts if part}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    needed = {DISTRIBUTION.get(name, name).replace("_", "-") for name in imported() - OPTIONAL}
    assert needed == declared().keys()


def test_the_wheel_has_every_data_file() -> None:
    package = ROOT / "src" / "fedcap"
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["fedcap"]
    matched = {path for pattern in patterns for path in package.glob(pattern)}
    files = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert matched == {path for path in files if path.suffix != ".py"}


def test_the_command_line_has_versions_that_work_together_and_with_flower() -> None:
    ranges = declared()
    assert ranges["typer"].endswith("<0.21"), "newer ones bring no click, and Flower refuses them"
    assert ranges["click"].endswith("<8.5"), "with newer ones, this typer shows no help of arguments"


@pytest.mark.parametrize("line", (ROOT / "constraints.txt").read_text().splitlines())
def test_the_constraints_lie_within_the_declared_ranges(line: str) -> None:
    from packaging.specifiers import SpecifierSet

    name, _, version = line.partition("==")
    assert not version or SpecifierSet(declared().get(name, "")).contains(version, prereleases=True)


def test_ci_installs_as_users_do() -> None:
    assert " .ci/install)" in (ROOT / ".ci" / "run").read_text()
    assert "-c constraints" not in (ROOT / ".ci" / "install").read_text()
