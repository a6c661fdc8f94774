"""Shared by the tests of the paper's tables: made-up outcomes of its cells."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outcome_tools import outcome

from fedcap.runs import Curve, Norms, Outcome
from reproduction.cells import PaperCell
from reproduction.items import find
from reproduction.recorded import resolved


def paper_cell(name: str, dataset: str, column: str, attack: str) -> PaperCell:
    """Return the first cell of that column of a table."""
    return find(name).only(dataset, column, attack).cells[0]


def outcome_of(planned: PaperCell, tacc: float, seed: int = 0, **more: Any) -> Outcome:
    """Return an outcome of a cell's run."""
    settings = {**resolved(planned), "seed": seed}
    return outcome(tacc, settings=settings, **more)


def made_up(planned: Iterable[PaperCell], seeds: int = 2) -> list[Outcome]:
    """Return outcomes of cells, each a little above the last, with curves and norms."""
    found = []
    for place, each in enumerate(planned):
        for seed in range(seeds):
            tacc = 50 + place % 40 + seed
            curve = Curve([1, 2, 3], [tacc - 9, tacc - 4, tacc - 2], [tacc - 5, tacc - 1, tacc])
            norms = Norms([1, 2, 3], [1.0, 1.1, 1.2], [2.0, 20.0, None])
            found.append(outcome_of(each, tacc, seed, curve=curve, norms=norms))
    return found


def save(outcomes: Iterable[Outcome], folder: Path) -> Path:
    """Write outcomes as a folder of results."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, each in enumerate(outcomes):
        (folder / f"{place:016x}.json").write_text(each.to_json())
    return folder
