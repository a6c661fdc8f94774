"""How benchmarks tell what they found: a line as it comes, then a table as Markdown and as JSON."""

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


def write(name: str, title: str, rows: Sequence[Row]) -> None:
    machine = f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}"
    lines = [[text(value) for value in row.values()] for row in rows]
    table = f"## {title}\n\n{markdown(tuple(rows[0]), lines)}\n\n{machine}; `make bench` makes this table.\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(table)
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")
    print(table, flush=True)
