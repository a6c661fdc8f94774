"""`fedcap demo`: one table, saved with a picture, a page and every run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import call


def test_demo_prints_one_table_and_saves_it_with_a_picture(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "demo", "--rounds", "1", "--workers", "2", "--out", "tour", "-q")
    assert (code, err) == (0, "")
    assert "1 round, seed 0" in out
    for word in ("Local", "FedAvg", "FedCAP", "no attack", "ipm", "lie", "min-max", "sign-flipping"):
        assert word in out
    assert Path("tour/accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert "| ipm |" in Path("tour/report.md").read_text()
    assert "All results as a page for the browser: tour/report.html" in out
    assert Path("tour/report.html").read_text().startswith("<!doctype html>")
    assert len(list(Path("tour/cells").glob("*/result.json"))) == 15
    code, out, _ = call(capsys, "demo", "--rounds", "1", "--workers", "2", "--out", "tour", "--json")
    assert [row["attack"] for row in json.loads(out)] == ["none", "sign-flipping", "lie", "min-max", "ipm"]
