"""`fedcap paper`: what is there, running it, showing it without any data, keeping it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import call
from paper_tools import came_to, entry, made_up, save

from fedcap.experiments.paper.items import item, items
from fedcap.runs import Outcome

TRAP = ("traps", "--dataset", "digits", "--column", "one setting", "--attack", "LIE", "--rounds", "1")
"""One run of a second."""


def test_list_counts_finished_cells_of_each_table(
    data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = save([came_to(entry("table-4", "cifar10", "FedCAP", "ipm"), 84.0)], data_folder / "results")
    code, printed, _ = call(capsys, "paper", "list", "--results", results, "--json")
    assert code == 0
    found = {row["name"]: row["cells"] for row in json.loads(printed)}
    assert found.keys() == items().keys()
    assert found["table-4"] == {"cifar10": {"finished": 1, "of": 25}}
    assert found["table-5"]["cifar10"]["finished"] == 0
    code, printed, _ = call(capsys, "paper", "list", "--results", results)
    assert "1/25" in printed
    assert "Table IV" in printed


def test_show_needs_no_data(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = entry("table-3", "wisdm", "FedCAP", "ipm")
    results = save([came_to(planned, 95.0, seed) for seed in (0, 1)], data_folder / "results")
    code, printed, _ = call(capsys, "paper", "show", "table-3", "--results", results)
    assert code == 0
    assert "94.1 +0.9" in printed
    code, printed, _ = call(
        capsys, "paper", "show", "table-3", "--results", results, "--seeds", "1", "--json"
    )
    (found,) = [
        each
        for each in json.loads(printed)["entries"]
        if each["ours"] is not None and each["measure"] == "tacc" and each["column"].startswith("FedCAP:")
    ]
    assert (found["ours"], found["seeds"], found["paper"]) == (95.0, [1], 94.06)


def test_show_draws_the_figures(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = save(made_up(item("alpha").only("wisdm").entries), data_folder / "results")
    figures = data_folder / "figures"
    code, _, _ = call(capsys, "paper", "show", "alpha", "--results", results, "--figures", figures)
    assert code == 0
    assert sorted(path.name for path in figures.iterdir()) == [
        f"alpha-wisdm.{kind}" for kind in ("pdf", "png", "svg")
    ]


def test_a_run_is_played_once_kept_and_shown(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, _ = call(capsys, "paper", "run", *TRAP, "--jobs", 1, "--results", "kept", "--json")
    assert code == 0
    assert json.loads(printed) == {"directory": "fedcap-paper", "runs": 1, "done": 1, "failed": []}
    (path,) = Path("kept").iterdir()
    assert path.stem == Outcome.from_json(path.read_text()).digest[:16]
    before = path.stat().st_mtime_ns
    # Outcomes in the folder of results count as done, wherever the runs themselves are.
    code, printed, _ = call(capsys, "paper", "run", *TRAP, "--out", "elsewhere", "--results", "kept")
    assert (code, path.stat().st_mtime_ns) == (0, before)
    assert "1 of 1 run done" in printed
    assert not list(Path("elsewhere").rglob("config.toml"))
    code, printed, _ = call(capsys, "paper", "show", *TRAP, "--json")
    (found,) = json.loads(printed)["entries"]
    assert found["ours"] == Outcome.from_json(path.read_text()).tacc


def test_finished_runs_of_any_table_become_results(
    data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = entry("table-4", "cifar10", "FedCAP", "ipm")
    run, other = came_to(planned, 84.0, seed=3), came_to(planned, 50.0)
    shorter = replace(other, digest="f" * 64, settings={**other.settings, "rounds": 1})
    for name, outcome in (("whole", run), ("of no table", shorter)):
        (Path("fedcap-paper/cells") / name).mkdir(parents=True)
        (Path("fedcap-paper/cells") / name / "outcome.json").write_text(outcome.to_json())
    for written in (1, 0):
        code, printed, _ = call(capsys, "paper", "keep", "--json")
        assert code == 0
        assert json.loads(printed) == {"finished": 1, "written": written, "results": "results"}
    assert [path.name for path in Path("results").iterdir()] == [f"{run.digest[:16]}.json"]


def characters(path: Path) -> None:
    """Write a handwritten62.npz of forty of each character."""
    y = np.repeat(np.arange(62), 40)
    x = np.random.default_rng(0).integers(0, 255, (len(y), 28, 28), dtype=np.uint8)
    np.savez(path, x=x, y=y)


def test_where_emnist_is_absent_handwritten62_stands_in(
    data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    characters(data_folder / "handwritten62.npz")
    asked = ("paper", "run", "table-3", "--attack", "ipm", "--column", "FedCAP", "--dry-run", "--json")
    code, printed, said = call(capsys, *asked)
    assert code == 0
    assert {run["dataset"] for run in json.loads(printed)["runs"]} == {"handwritten62"}
    assert "emnist is not here: handwritten62 stands in, under its own name" in said
    assert "leaving out cifar10" in said
    assert said.count("handwritten62") == 1


def test_data_that_is_not_here_is_one_line(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = call(capsys, "paper", "run", "table-4")
    assert code == 2
    assert "cifar10" in said
    assert len(said.strip().splitlines()) == 1
    code, _, said = call(capsys, "paper", "run", "table-1", "--dataset", "emnist")
    assert code == 2


def test_an_unknown_table_is_one_line(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = call(capsys, "paper", "show", "tabel-1")
    assert code == 2
    assert "did you mean 'table-1'" in said


def test_pages_are_written_with_their_figures(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = save(made_up(item("alpha").only("wisdm").entries), data_folder / "results")
    code, printed, _ = call(capsys, "paper", "write", "--results", results, "--docs", "pages", "--json")
    assert code == 0
    assert [Path(path).name for path in json.loads(printed)][-2:] == ["RESULTS.md", "REPRODUCING.md"]
    assert "(figures/alpha-wisdm.png)" in Path("pages/RESULTS.md").read_text()
    assert Path("pages/figures/alpha-wisdm.png").exists()
