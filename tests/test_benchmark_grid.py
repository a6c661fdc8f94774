"""The benchmark of grids plays all of its cells both ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import grid, report


@pytest.mark.slow
def test_cells_an_hour_are_told_with_the_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    for name, value in {"SEEDS": 1, "ROUNDS": 1, "ATTACKS": ("none",), "TURNS": 1}.items():
        monkeypatch.setattr(grid, name, value)
    grid.main()
    text = (tmp_path / "grid.md").read_text()
    assert "| turn | cells | grid, cells an hour | one by one | times one by one |" in text
    assert "one in each of 2 workers one by one" in text


def test_the_grid_has_thirty_cells_and_no_two_turns_share_any() -> None:
    first, second = ({cell.name for cell in grid.cells(seed)} for seed in (0, grid.SEEDS))
    assert len(first) == len(second) == 30
    assert not first & second
