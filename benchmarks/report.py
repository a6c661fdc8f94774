"""The output of benchmarks: a line per measurement, then a table as Markdown and as JSON.

Every table names the machine and the number of threads.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fedcap.report.tables import markdown

RESULTS = Path(__file__).parent / "results"

Row = Mapping[str, Any]


def text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def progress(row: Row) -> None:
    print("  ".join(f"{key}: {text(value)}" for key, value in row.items()), flush=True)


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}"


def table(title: str, rows: Sequence[Row], threads: str, about: str = "") -> str:
    """Return the table as Markdown; `threads` says which process used how many."""
    lines = [[text(value) for value in row.values()] for row in rows]
    parts = [f"## {title}", about, markdown(tuple(rows[0]), lines), f"Threads: {threads}. {machine()}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def write(name: str, title: str, rows: Sequence[Row], threads: str, about: str = "") -> None:
    """Write the table to `results`, as Markdown and as JSON, and print it."""
    content = table(title, rows, threads, about)
    facts = {"machine": machine(), "threads": threads, "about": about, "rows": rows}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(f"{content}\n`make bench` makes this table.\n")
    (RESULTS / f"{name}.json").write_text(json.dumps(facts, indent=2) + "\n")
    print(content, flush=True)
