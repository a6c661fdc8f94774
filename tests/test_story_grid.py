"""What a page tells of a grid: maps, each run's own story, clients alone, the paper's figures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from grid_tools import TINY, Here
from story_tools import decoded, record, write

import fedcap
from benchmarks.page import MOST_GRID, write_grid
from fedcap.errors import InputError
from fedcap.experiments.engine import LogFailures, Watcher
from fedcap.experiments.grid import Cell
from fedcap.experiments.store import CellStore, prepare
from fedcap.report.page import page
from fedcap.report.panel import Estimate
from fedcap.report.story import Check, Memo, Said, Story, packed, story_of
from fedcap.report.story.story import Field, Panel
from fedcap.runs import Outcome, Settings, read
from fedcap.runs.outcome import read_outcome

SETTINGS: dict[str, Any] = {"attacks": ["none", "ipm"], "seeds": "0-1", **TINY}


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grid")
    fedcap.Grid(methods=["fedavg", "fedcap", "local"], **SETTINGS).run(out=folder, engine=Here())
    return folder


def outcomes(grid: Path) -> list[Outcome]:
    return [found for path in (grid / "cells").glob("*/outcome.json") if (found := read_outcome(path))]


def only_panel(story: Story) -> Panel:
    assert story.map is not None
    (panel,) = story.map.panels
    return panel


def field(panel: Panel, method: str, attack: str) -> Field:
    return panel.fields[panel.methods.index(method)][panel.attacks.index(attack)]


def test_a_field_is_the_mean_over_seeds_with_its_interval(grid: Path) -> None:
    story = story_of(grid)
    panel = only_panel(story)
    assert (panel.title, panel.attacks) == ("digits", ["no attack", "ipm"])
    assert sorted(panel.methods) == ["fedavg", "fedcap", "local"]
    assert (story.kind, story.state, story.played, story.planned) == ("grid", "finished", 12, 12)
    for method in panel.methods:
        for attack in panel.attacks:
            named = "none" if attack == "no attack" else attack
            runs = {
                str(found.settings["seed"]): found
                for found in outcomes(grid)
                if found.settings["method"]["name"] == method and found.settings["attack"]["name"] == named
            }
            expected, found = Estimate.of(runs, "tacc"), field(panel, method, attack)
            assert expected is not None
            assert found.mean == pytest.approx(expected.mean)
            assert found.half_width == pytest.approx(expected.half_width)
            assert list(found.seeds) == ["0", "1"]
            worst = fmean(run.tacc_worst_client for run in runs.values())
            assert found.worst_client == pytest.approx(worst)


def test_methods_are_in_the_order_of_their_worst_attack(grid: Path) -> None:
    panel = only_panel(story_of(grid))
    worst = [field(panel, method, "ipm").mean or 0.0 for method in panel.methods]
    assert worst == sorted(worst, reverse=True)
    assert list(panel.worst) == [1, 1, 1]


def test_without_attacks_the_most_accurate_method_is_the_first(grid: Path, tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    for path in (grid / "cells").iterdir():
        if read(path).settings.attack.name == "none":
            shutil.copytree(path, tmp_path / "cells" / path.name)
    story = story_of(tmp_path)
    panel = only_panel(story)
    means = {method: field(panel, method, "no attack").mean or 0.0 for method in panel.methods}
    assert [*means.values()] == sorted(means.values(), reverse=True)
    best = panel.methods[0]
    (headline,) = story.headlines
    assert (headline.value, headline.label) == (f"{means[best]:.1f} %", best)
    assert headline.sentence == f"digits: {best} without attack."


def test_a_method_that_met_few_attacks_is_not_ranked_before_one_that_met_more(
    grid: Path, tmp_path: Path
) -> None:
    shutil.copytree(grid, tmp_path / "grid")
    best = only_panel(story_of(grid)).methods[0]
    for path in (tmp_path / "grid" / "cells").iterdir():
        if read(path).settings.method.name == best and read(path).settings.attack.name == "none":
            shutil.rmtree(path)
    story = story_of(tmp_path / "grid")
    assert only_panel(story).methods[-1] == best
    assert not story.headlines[0].label.startswith(best)


def test_runs_that_are_planned_and_not_begun_are_to_come(tmp_path: Path) -> None:
    cells = fedcap.Grid(methods=["fedavg", "local"], **SETTINGS).cells()
    store = CellStore(tmp_path)
    told = []

    class Told(Here):
        def run(self, cells: Sequence[Cell], store: CellStore, watcher: Watcher) -> None:
            for cell in cells:
                super().run([cell], store, watcher)
                told.append(story_of(tmp_path))

    plan = prepare(cells, store)
    before = story_of(tmp_path)
    assert before.sentence == "A comparison that has not begun: 0 of 8 runs are done."
    Told().run(plan.left, store, LogFailures())
    assert [(one.played, one.planned) for one in told] == [(done, 8) for done in range(1, 9)]
    assert [one.state for one in [before, *told]] == ["unfinished"] * 8 + ["finished"]
    prepare(cells, store)
    assert story_of(tmp_path).planned == 8
    (tmp_path / "planned.json").write_text('{"no": "list"}')
    assert story_of(tmp_path).state == "finished"


def test_each_field_leads_to_the_stories_of_its_runs(grid: Path) -> None:
    story = story_of(grid)
    panel = only_panel(story)
    assert story.map is not None
    for method in panel.methods:
        for attack in panel.attacks:
            found = field(panel, method, attack)
            titles = [story.map.cells[cell].title for cell in found.cells]
            assert titles == [f"{method} · digits · {attack} · seed {seed}" for seed in found.seeds]
    cells = decoded(json.loads(packed(story)))["map"]["cells"]
    assert [cell["title"] for cell in cells] == [cell.title for cell in story.map.cells]
    assert all(cell["course"]["accuracy"]["rounds"] == [1, 2] for cell in cells)


def test_clients_alone_are_those_of_the_same_seed_and_roster(grid: Path) -> None:
    story = story_of(grid)
    assert story.map is not None
    alone: dict[tuple[Any, ...], dict[str, float | None]] = {}
    for path in (grid / "cells").iterdir():
        run = read(path)
        if run.settings.method.name == "local":
            key = (run.settings.seed, tuple(run.provenance.malicious))
            alone[key] = {client.id: client.personal for client in run.clients}
    compared = 0
    for cell in story.map.cells:
        assert cell.course is not None
        if cell.title.startswith("local"):
            assert cell.course.local is None
            continue
        roster = tuple(client.name for client in cell.course.clients if client.role == "attacker")
        seed = int(cell.title[-1])
        for client in cell.course.clients:
            if client.role == "honest":
                assert client.local == pytest.approx(alone[seed, roster][client.name], abs=0.005)
                compared += 1
    assert compared == 2 * (4 + 4 + 3 + 3)


def test_who_does_as_well_alone_gains_nothing(grid: Path) -> None:
    """An outcome has two digits, a run all of them: the difference is no gain."""
    story = story_of(grid)
    assert story.map is not None
    runs = {_title(run.settings): run for run in map(read, (grid / "cells").iterdir())}
    ties = 0
    for cell in story.map.cells:
        method, rest = cell.title.split(" · ", 1)
        if method == "local":
            continue
        alone = {client.id: client.personal for client in runs[f"local · {rest}"].clients}
        gains = {
            client.id: max(client.shared or 0.0, client.personal) - (alone[client.id] or 0.0)
            for client in runs[cell.title].clients
            if client.personal is not None
        }
        assert cell.course is not None
        told = {client.name: client.gain for client in cell.course.clients if client.gain is not None}
        assert told == pytest.approx(gains, abs=0.05)
        assert [gain == 0 for gain in told.values()] == [gain == 0 for gain in gains.values()]
        words = next(each.sentence for each in cell.headlines if each.label == "points over Local")
        assert f"; {sum(gain > 0 for gain in gains.values())} of {len(gains)} do better" in words
        ties += sum(gain == 0 for gain in gains.values())
    assert ties


def _title(settings: Settings) -> str:
    attack = "no attack" if settings.attack.name == "none" else settings.attack.name
    return f"{settings.method.name} · digits · {attack} · seed {settings.seed}"


def test_what_varies_names_rows_columns_and_maps(tmp_path: Path) -> None:
    axes = {"method.alpha": [1, 5], "malicious": [0.25, 0.4], "attack.epsilon": [2, 20]}
    fixed = {key: value for key, value in TINY.items() if key != "malicious"}
    made = fedcap.Grid(methods=["fedcap"], attacks=["none", "ipm"], axes=axes, **{**fixed, "rounds": 1})
    made.run(out=tmp_path, engine=Here())
    story = story_of(tmp_path)
    assert story.map is not None
    assert [panel.title for panel in story.map.panels] == ["digits, malicious 0.25", "digits, malicious 0.4"]
    for panel in story.map.panels:  # runs without attackers stand in both
        assert panel.attacks == ["no attack", "ipm (epsilon 2.0)", "ipm (epsilon 20.0)"]
        assert sorted(panel.methods) == ["fedcap (alpha 1.0)", "fedcap (alpha 5.0)"]
        assert all(found.mean is not None for line in panel.fields for found in line)


def test_outcomes_alone_make_the_same_map(grid: Path, tmp_path: Path) -> None:
    for number, path in enumerate((grid / "cells").glob("*/outcome.json")):
        shutil.copy(path, tmp_path / f"{number}.json")
    (tmp_path / "other.json").write_text("{}")
    story, whole = story_of(tmp_path), story_of(grid)
    assert story.map is not None
    assert whole.map is not None
    assert story.map.panels == whole.map.panels
    assert "other.json is left out" in story.troubles[0]
    first = story.map.cells[0].course
    assert first is not None
    assert first.mixing is None
    assert first.accuracy is not None
    assert whole.map.cells[0].course is not None
    assert first.accuracy.personal.mean == whole.map.cells[0].course.accuracy.personal.mean


def test_unfinished_and_failed_runs_are_told(grid: Path, tmp_path: Path) -> None:
    folder = tmp_path / "grid"
    shutil.copytree(grid, folder)
    gone = next(path for path in (folder / "cells").iterdir() if read(path).settings.method.name == "fedavg")
    for name in ("result.json", "outcome.json"):
        (gone / name).unlink()
    settings = read(gone).settings
    (folder / "cells" / "damaged").mkdir()
    place = {"dataset": "digits", "method": "ditto", "attack": "<b>ipm</b>", "seed": "0"}
    CellStore(folder).fail(Cell(place, fedcap.Experiment(**TINY)), "out of <memory>")
    story = story_of(folder)
    attack = "no attack" if settings.attack.name == "none" else "ipm"
    found = field(only_panel(story), "fedavg", attack)
    assert (found.missing, len(found.cells), found.half_width) == (1, 2, None)
    assert (story.state, story.played, story.planned) == ("unfinished", 11, 12)
    assert story.map is not None
    assert [(each.title, each.why) for each in story.map.failed] == [
        ("digits · ditto · <b>ipm</b> · seed 0", "out of <memory>")
    ]
    assert "damaged is left out" in story.troubles[0]
    runs = next(check for check in story.checks if check.name == "Runs")
    assert runs.mark == "bad"
    assert "<" not in packed(story)


def test_with_a_memo_only_runs_that_changed_are_read_again(tmp_path: Path) -> None:
    names = ["ada", "bob"]
    for seed in (0, 1):
        run = tmp_path / "cells" / str(seed)
        write(run, [record(1, names)], names, finished=False, rounds=2, seed=seed)
    memo: Memo = {}
    first, again = story_of(tmp_path, memo=memo), story_of(tmp_path, memo=memo)
    assert first.map is not None
    assert again.map is not None
    assert [id(cell) for cell in first.map.cells] == [id(cell) for cell in again.map.cells]
    shutil.rmtree(tmp_path / "cells" / "1")
    write(tmp_path / "cells" / "1", [record(number, names) for number in (1, 2)], names, seed=1)
    third = story_of(tmp_path, memo=memo)
    assert third.map is not None
    assert third.map.cells[0] is first.map.cells[0]
    assert [cell.played for cell in third.map.cells] == [1, 2]


def test_the_papers_figure_stands_beside_ours(grid: Path) -> None:
    same = Check("ok", "The paper's setting", "The same.")

    def paper(settings: Any) -> Said | None:
        is_fedcap = settings["method"]["name"] == "fedcap"
        return Said(same, ["FedCAP"], 80.0, "tacc_personal", "Table I") if is_fedcap else None

    story = story_of(grid, paper=paper)
    found = field(only_panel(story), "fedcap", "ipm")
    ours = [
        run.tacc_personal
        for run in outcomes(grid)
        if (run.settings["method"]["name"], run.settings["attack"]["name"]) == ("fedcap", "ipm")
    ]
    assert (found.published, found.source) == (80.0, "Table I")
    assert found.read == pytest.approx(fmean(ours))
    assert field(only_panel(story), "fedavg", "ipm").published is None


def test_a_grid_takes_no_run_of_clients_alone(grid: Path) -> None:
    with pytest.raises(InputError, match="a grid has its own"):
        story_of(grid, local=grid)


@pytest.mark.slow
def test_the_pages_budget_of_a_grid_holds(tmp_path: Path) -> None:
    assert write_grid(tmp_path) == 144
    story = story_of(tmp_path)
    assert len(page(packed(story))) < MOST_GRID
    assert story.map is not None
    for cell in story.map.cells:
        assert cell.course is not None
        assert cell.course.accuracy is not None
        assert len(cell.course.accuracy.rounds) == 100
