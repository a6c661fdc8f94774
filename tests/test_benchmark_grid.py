"""The benchmark of grids plays all of its cells in each way."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import grid, report


@pytest.mark.slow
def test_the_table_has_cells_and_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    for name, value in {"SEEDS": 1, "ROUNDS": 1, "ATTACKS": ("none",)}.items():
        monkeypatch.setattr(grid, name, value)
    grid.main()
    text = (tmp_path / "grid.md").read_text()
    assert "| cells | grid, cells per hour | fedcap run, one after the other | times fedcap run |" in text
    assert "one in each of 2 workers of a run" in text


def test_the_grid_has_thirty_cells_and_no_two_turns_share_any() -> None:
    first, second = ({cell.name for cell in grid.cells(seed)} for seed in (0, grid.SEEDS))
    assert len(first) == len(second) == 30
    assert not first & second
