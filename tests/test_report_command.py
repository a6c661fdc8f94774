"""`fedcap report`: one page from the directory of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from grid_tools import TINY
from helpers import call
from report_tools import decoded, record, write

import fedcap

NAMES = ["ada", "bob"]


def report_in(page: Path) -> dict[str, object]:
    found = re.search(
        r'<script type="application/json" id="report">(.*?)</script>', page.read_text(), re.DOTALL
    )
    assert found is not None
    return decoded(json.loads(found[1]))


def test_the_page_is_written_to_the_directory_or_to_another_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write(tmp_path / "run", [record(1, NAMES), record(2, NAMES)], NAMES)
    code, out, _ = call(capsys, "report", run)
    assert code == 0
    assert out.startswith(f"{run / 'report.html'}: ")
    report = report_in(run / "report.html")
    assert (report["kind"], report["done"]) == ("run", 2)
    elsewhere = tmp_path / "page.html"
    code, out, _ = call(capsys, "report", run, "-o", elsewhere, "--json")
    printed = json.loads(out)
    assert (printed["file"], printed["bytes"]) == (str(elsewhere), elsewhere.stat().st_size)
    assert printed["omitted"] == printed["problems"] == []


def test_local_is_compared_with_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("fedcap", "local"):
        fedcap.Experiment(**TINY, method=method).run(out=tmp_path / method)
    code, _, _ = call(capsys, "report", tmp_path / "fedcap", "--local", tmp_path / "local")
    assert code == 0
    report = report_in(tmp_path / "fedcap" / "report.html")
    assert any(client["gain"] is not None for client in report["run"]["clients"])


def test_problems_and_what_was_left_out_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write(tmp_path / "run", [record(1, NAMES), record(2, ["x" * 90])], NAMES)
    (run / "result.json").write_text("nonsense")
    code, out, _ = call(capsys, "report", run)
    assert code == 0
    assert "problem: " in out
    assert "result.json" in out
    assert "Names longer than 60 characters are cut." in out
