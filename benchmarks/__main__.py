"""List the benchmarks, or run some of them: `python -m benchmarks [all | NAME …]`."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

TABLES = (
    "rules",
    "server",
    "rounds",
    "parts",
    "memory",
    "grid",
    "ray",
    "federation",
    "page",
    "startup",
    "scale",
)
"""Those that write a table into `results`."""
TOOLS = ("against", "same_bits", "soak")
"""Those with arguments: `python -m benchmarks.against REV`."""


def summary(name: str) -> str:
    """Return the first line of a module's docstring, without importing the module."""
    tree = ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def listing() -> str:
    """Return a line for each benchmark."""
    return "\n".join(f"{name:<12}{summary(name)}" for name in (*TABLES, *TOOLS))


def main(words: Sequence[str]) -> None:
    """Run the named benchmarks in order; without a name, list them."""
    if not words:
        print(f"{__doc__}\n\n{listing()}")
        return
    for name in TABLES if list(words) == ["all"] else words:
        if name in TOOLS:
            sys.exit(f"{name} takes arguments: python -m benchmarks.{name} …")
        if name not in TABLES:
            sys.exit(f"no benchmark {name!r} (known: {', '.join((*TABLES, *TOOLS))})")
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
