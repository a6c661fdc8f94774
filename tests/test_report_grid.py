"""The report on a grid: its tables, the report on each run, and what is compared with Local."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from grid_tools import TINY, Here
from report_tools import decoded, reason, record, write
from scipy import stats

import fedcap
from benchmarks.page import MOST_GRID, write_grid
from fedcap.experiments.engine import LogFailures, Watcher
from fedcap.experiments.grid import Cell
from fedcap.experiments.store import CellStore, prepare
from fedcap.report.grid import Memo
from fedcap.report.model import GridCell, GridData, GridTable, Report
from fedcap.report.pack import pack
from fedcap.report.page import build_report, page
from fedcap.runs import AttackStats, Outcome, read
from fedcap.runs.outcome import read_outcome

SETTINGS: dict[str, Any] = {"attacks": ["none", "ipm"], "seeds": "0-2", **TINY}


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grid")
    fedcap.Grid(methods=["fedavg", "fedcap", "local"], **SETTINGS).run(out=folder, engine=Here())
    return folder


def outcomes(grid: Path) -> list[Outcome]:
    return [found for path in (grid / "cells").glob("*/outcome.json") if (found := read_outcome(path))]


def grid_of(report: Report) -> GridData:
    assert report.grid is not None
    return report.grid


def only_table(report: Report) -> GridTable:
    (table,) = grid_of(report).tables
    return table


def cell_of(table: GridTable, method: str, attack: str) -> GridCell:
    return table.cells[table.methods.index(method)][table.attacks.index(attack)]


def test_a_cell_is_the_mean_over_seeds_with_its_interval(grid: Path) -> None:
    report = build_report(grid)
    table = only_table(report)
    assert (table.title, table.attacks) == ("digits", ["no attack", "ipm"])
    assert sorted(table.methods) == ["fedavg", "fedcap", "local"]
    assert (report.kind, report.state, report.done, report.planned) == ("grid", "finished", 18, 18)
    for method in table.methods:
        for attack in table.attacks:
            named = "none" if attack == "no attack" else attack
            runs = [
                run
                for run in outcomes(grid)
                if (run.settings["method"]["name"], run.settings["attack"]["name"]) == (method, named)
            ]
            values = [run.tacc for run in runs]
            cell = cell_of(table, method, attack)
            assert cell.mean == pytest.approx(fmean(values))
            assert cell.half_width == pytest.approx(stats.t.ppf(0.975, 2) * stdev(values) / 3**0.5)
            assert list(cell.seeds) == ["0", "1", "2"]
            assert cell.worst_client == pytest.approx(fmean(run.tacc_worst_client for run in runs))


def test_methods_are_in_the_order_of_their_worst_attack(grid: Path) -> None:
    table = only_table(build_report(grid))
    worst = [cell_of(table, method, "ipm").mean or 0.0 for method in table.methods]
    assert worst == sorted(worst, reverse=True)
    assert list(table.worst) == [1, 1, 1]


def test_a_method_without_some_attack_is_ranked_after_the_others(grid: Path, tmp_path: Path) -> None:
    shutil.copytree(grid, tmp_path / "grid")
    best = only_table(build_report(grid)).methods[0]
    for path in (tmp_path / "grid" / "cells").iterdir():
        if read(path).settings.method.name == best and read(path).settings.attack.name == "none":
            shutil.rmtree(path)
    report = build_report(tmp_path / "grid")
    assert only_table(report).methods[-1] == best
    assert report.figures[0].label == f"best method: {only_table(report).methods[0]}"


def test_planned_runs_that_have_not_begun_are_missing(tmp_path: Path) -> None:
    cells = fedcap.Grid(methods=["fedavg", "local"], **{**SETTINGS, "seeds": "0-1"}).cells()
    store = CellStore(tmp_path)
    reports = []

    class Reporting(Here):
        def run(self, cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
            for cell in cells:
                super().run([cell], store, watcher)
                reports.append(build_report(tmp_path))

    status = prepare(cells, store)
    before = build_report(tmp_path)
    assert before.summary == "A comparison that has not begun: 0 of 8 runs have finished."
    assert [cell.missing for row in only_table(before).cells for cell in row] == [2] * 4
    Reporting().run(status.left, store, LogFailures())
    assert [(one.done, one.planned) for one in reports] == [(done, 8) for done in range(1, 9)]
    assert [one.state for one in [before, *reports]] == ["unfinished"] * 8 + ["finished"]
    missing = [sum(cell.missing for row in only_table(one).cells for cell in row) for one in reports]
    assert missing == list(range(7, -1, -1))
    (tmp_path / "planned.json").write_text('{"no": "list"}')
    assert build_report(tmp_path).state == "finished"


def test_checks_name_the_method_and_the_attack_of_runs_to_look_at(tmp_path: Path) -> None:
    names = ["ada", "bob", "cyd", "dan"]
    for seed, removed in ((0, "dan"), (1, "ada"), (2, "ada")):
        first = record(1, names, removed={removed: reason()}, attack=AttackStats(9.0, 2.0, -1.0))
        path = tmp_path / "cells" / str(seed)
        write(path, [first], names, ["dan"], seed=seed)
    checks = {check.name: (check.mark, check.text) for check in build_report(tmp_path).checks}
    assert checks["Runs"] == ("ok", "3 of 3 finished.")
    assert checks["Attack"] == ("ok", "No problem in 3 runs.")
    assert checks["Honest clients removed"] == ("warn", "Look at 2 of 3 runs: fedcap under ipm.")


def test_each_cell_leads_to_the_reports_on_its_runs(grid: Path) -> None:
    report = build_report(grid)
    table = only_table(report)
    for method in table.methods:
        for attack in table.attacks:
            cell = cell_of(table, method, attack)
            titles = [grid_of(report).runs[run].title for run in cell.runs]
            assert titles == [f"{method} · digits · {attack} · seed {seed}" for seed in cell.seeds]
    runs = decoded(json.loads(pack(report)))["grid"]["runs"]
    assert [run["title"] for run in runs] == [run.title for run in grid_of(report).runs]
    assert all(run["run"]["accuracy"]["rounds"] == [1, 2] for run in runs)


def test_local_is_that_of_the_same_seed_and_the_same_malicious_clients(grid: Path) -> None:
    alone: dict[tuple[Any, ...], dict[str, float | None]] = {}
    for path in (grid / "cells").iterdir():
        run = read(path)
        if run.settings.method.name == "local":
            key = (run.settings.seed, tuple(run.provenance.malicious))
            alone[key] = {client.id: client.personal for client in run.clients}
    compared = 0
    for report in grid_of(build_report(grid)).runs:
        assert report.run is not None
        if report.title.startswith("local"):
            assert report.run.local is None
            continue
        malicious = tuple(client.name for client in report.run.clients if client.role == "malicious")
        seed = int(report.title[-1])
        for client in report.run.clients:
            if client.role == "honest":
                assert client.local == pytest.approx(alone[seed, malicious][client.name])
                compared += 1
    assert compared == 2 * 3 * (4 + 3)


def test_axes_of_the_grid_name_rows_columns_and_tables(tmp_path: Path) -> None:
    axes = {"method.alpha": [1, 5], "malicious": [0.25, 0.4], "attack.epsilon": [2, 20]}
    fixed = {key: value for key, value in TINY.items() if key != "malicious"}
    made = fedcap.Grid(methods=["fedcap"], attacks=["none", "ipm"], axes=axes, **{**fixed, "rounds": 1})
    made.run(out=tmp_path, engine=Here())
    tables = grid_of(build_report(tmp_path)).tables
    assert [table.title for table in tables] == ["digits, malicious 0.25", "digits, malicious 0.4"]
    for table in tables:  # runs without malicious clients are in both
        assert table.attacks == ["no attack", "ipm (epsilon 2)", "ipm (epsilon 20)"]
        assert sorted(table.methods) == ["fedcap (alpha 1)", "fedcap (alpha 5)"]
        assert all(cell.mean is not None for row in table.cells for cell in row)


def test_unfinished_and_failed_runs_are_listed(grid: Path, tmp_path: Path) -> None:
    folder = tmp_path / "grid"
    shutil.copytree(grid, folder)
    gone = next(path for path in (folder / "cells").iterdir() if read(path).settings.method.name == "fedavg")
    settings = read(gone).settings
    for name in ("result.json", "outcome.json"):
        (gone / name).unlink()
    (folder / "cells" / "damaged").mkdir()
    place = {"dataset": "digits", "method": "ditto", "attack": "<b>ipm</b>", "seed": "0"}
    CellStore(folder).fail(Cell(place, fedcap.Experiment(**TINY)), "out of <memory>")
    report = build_report(folder)
    attack = "no attack" if settings.attack.name == "none" else "ipm"
    cell = cell_of(only_table(report), "fedavg", attack)
    assert (cell.missing, len(cell.runs), cell.half_width) == (1, 3, None)
    assert (report.state, report.done, report.planned) == ("unfinished", 17, 18)
    assert [(each.name, each.value) for each in grid_of(report).failed] == [
        ("digits · ditto · <b>ipm</b> · seed 0", "out of <memory>")
    ]
    assert "damaged is left out" in report.problems[0]
    assert next(check for check in report.checks if check.name == "Runs").mark == "bad"
    assert "<" not in pack(report)


def test_with_a_memo_only_runs_that_changed_are_read_again(tmp_path: Path) -> None:
    names = ["ada", "bob"]
    for seed in (0, 1):
        run = tmp_path / "cells" / str(seed)
        write(run, [record(1, names)], names, finished=False, rounds=2, seed=seed)
    memo: Memo = {}
    first, again = (grid_of(build_report(tmp_path, memo=memo)).runs for _ in range(2))
    assert list(map(id, first)) == list(map(id, again))
    shutil.rmtree(tmp_path / "cells" / "1")
    write(tmp_path / "cells" / "1", [record(number, names) for number in (1, 2)], names, seed=1)
    third = grid_of(build_report(tmp_path, memo=memo)).runs
    assert third[0] is first[0]
    assert [run.done for run in third] == [1, 2]


@pytest.mark.slow
def test_the_size_budget_of_a_grid_holds(tmp_path: Path) -> None:
    assert write_grid(tmp_path) == 144
    report = build_report(tmp_path)
    assert len(page(pack(report))) < MOST_GRID
    for run in grid_of(report).runs:
        assert run.run is not None
        assert run.run.accuracy is not None
        assert len(run.run.accuracy.rounds) == 100
