"""Our figures and the paper's: agreement, ranks, pictures, pages, and the commands."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import refused
from outcome_tools import over_seeds
from reproduction_tools import made_up, outcome_of, paper_cell, save
from scipy import stats

from fedcap.experiments.store import read_outcomes, save_outcomes
from fedcap.report.panel import Finished, make_panels
from fedcap.runs import Curve, Outcome
from reproduction.__main__ import main
from reproduction.cells import Item
from reproduction.compare import compare, contests, table
from reproduction.items import find, items
from reproduction.matrix import (
    Grids,
    duels_table,
    is_clear,
    leads,
    mean_margins,
    without_repeats,
    worst_cases,
)
from reproduction.pictures import pictures
from reproduction.plan import PLAN
from reproduction.recorded import Recorded
from reproduction.reproducing import reproducing_page
from reproduction.results import results_pages
from reproduction.summary import MATRIX_PAGE, PAPER_PAGE
from reproduction.traps import WINDOWS
from reproduction.write import pages, write_pages

REPOSITORY = Path(__file__).parents[1]
TRAP = ("traps", "--dataset", "digits", "--column", "one setting", "--attack", "LIE", "--rounds", "1")
"""One run of a second."""


# --- Comparing with the paper


def test_a_figure_has_the_difference_to_the_paper_and_students_interval() -> None:
    planned = paper_cell("table-3", "wisdm", "FedCAP", "ipm")
    values = [94.0, 95.5, 95.0]
    recorded = Recorded(outcome_of(planned, tacc, seed) for seed, tacc in enumerate(values))
    facts = compare(find("table-3").only("wisdm", "FedCAP", "ipm"), recorded)[0].facts()
    low, high = stats.t.interval(0.95, 2, loc=0, scale=stats.sem(values))
    assert facts["ours"] == pytest.approx(np.mean(values))
    assert facts["half_width"] == pytest.approx((high - low) / 2)
    assert (facts["paper"], facts["seeds"]) == (94.06, [0, 1, 2])
    assert facts["difference"] == pytest.approx(np.mean(values) - 94.06)


@pytest.mark.parametrize(("tacc", "agrees"), [(92.57, True), (92.55, False), (95.56, True), (95.58, False)])
def test_accuracies_agree_within_the_tolerance(tacc: float, agrees: bool) -> None:
    planned = paper_cell("table-1", "wisdm", "FedCAP", "min-max")
    item = find("table-1").only("wisdm", "FedCAP", "min-max")
    (compared,) = compare(item, Recorded([outcome_of(planned, tacc)]))
    assert compared.agrees is agrees


def test_rates_agree_only_if_they_are_equal() -> None:
    only = find("table-3").only("wisdm", "FedCAP", "lie")
    run = outcome_of(only.cells[0], 94.0, dacc=100 * 26 / 36, fpr=0.0, fnr=90.0)
    verdicts = {each.cell.read: each.agrees for each in compare(only, Recorded([run]))}
    assert verdicts == {"tacc": True, "dacc": True, "fpr": True, "fnr": False}


def test_a_data_set_that_replaces_another_is_not_judged() -> None:
    planned = paper_cell("table-1", "handwritten62", "FedCAP", "ipm")
    item = find("table-1").only("handwritten62", "FedCAP", "ipm")
    (compared,) = compare(item, Recorded([outcome_of(planned, 50)]))
    assert (compared.cell.published, compared.difference, compared.agrees) == (85.43, None, None)


def test_diverged_runs_and_missing_seeds_are_marked() -> None:
    ours, mean = (paper_cell("table-1", "wisdm", column, "ipm") for column in ("FedCAP", "Mean"))
    runs = [outcome_of(ours, 94, 0), outcome_of(ours, 94, 1), outcome_of(mean, 37.36, 0, diverged=True)]
    made = table("wisdm", compare(Item("mine", "two columns", [mean, ours]), Recorded(runs)))
    assert made.dicts() == [{"": "ipm", "Mean": "37.4 † (1)\n37.4 +0.0", "FedCAP": "94.0\n94.1 -0.1"}]
    assert any("diverged" in note for note in made.notes)


def test_fedcap_leads_where_no_other_method_is_above_it() -> None:
    rows = ("sign-flipping", "lie", "ipm")
    ours = [outcome_of(paper_cell("table-1", "wisdm", "FedCAP", attack), 94.0) for attack in rows]
    rivals = {"sign-flipping": 93.9, "lie": 94.1, "ipm": 94.0}
    others = [
        outcome_of(paper_cell("table-1", "wisdm", "Median", attack), tacc) for attack, tacc in rivals.items()
    ]
    found = contests(compare(find("table-1"), Recorded([*ours, *others])))
    assert {row.row: row.is_won for row in found} == {"sign-flipping": True, "lie": False, "ipm": True}


def test_outcomes_that_are_older_than_an_option_are_found() -> None:
    planned = paper_cell("table-3", "wisdm", "FedCAP", "ipm")
    recorded = outcome_of(planned, 95.0)
    before = {key: value for key, value in recorded.settings["method"].items() if key != "similarity"}
    older = replace(recorded, settings={**recorded.settings, "method": before})
    assert Recorded([older]).of(planned)[0] is older


# --- Pictures and pages


def test_every_kind_of_picture_is_drawn(tmp_path: Path) -> None:
    wanted = {
        "baselines": "baselines-cifar10",
        "malicious-share": "malicious-share-cifar10-lie",
        "ditto-rules": "ditto-rules-cifar10-ipm",
        "norms": "norms-cifar10-sign-flipping",
    }
    for name, picture in wanted.items():
        found = compare(find(name), Recorded(made_up(find(name).cells[:40])))
        assert pictures(find(name), found)[picture](tmp_path / f"{picture}.svg")
        assert (tmp_path / f"{picture}.svg").read_text().count("<path") > 20
    alone = Recorded([outcome_of(paper_cell("alpha", "wisdm", "ipm", "ipm"), 95.0)])
    assert not pictures(find("alpha"), compare(find("alpha"), alone))


def test_a_difference_has_its_reason_only_where_it_holds() -> None:
    def page(column: str, attack: str, tacc: float) -> str:
        cell = paper_cell("table-1", "wisdm", column, attack)
        return results_pages(Recorded([outcome_of(cell, tacc)]), Grids())[PAPER_PAGE]

    assert "only the first tensor" in page("FLTrust", "model-replacement", 93.0)
    assert "only the first tensor" not in page("FLTrust", "model-replacement", 37.4)
    assert ". Not explained. Our copy of WISDM also lacks" in page("M-Krum", "lie", 97.0)
    assert "seed 0 is easy" not in page("Mean", "ipm", 90.0)
    assert ". Not explained." in page("Median", "model-replacement", 80.0)


def test_the_summary_counts_each_run_and_figure_once_and_says_where_fedcap_does_not_lead() -> None:
    runs = [
        outcome_of(paper_cell("table-1", "wisdm", "FedCAP", "lie"), 94.0, dacc=72.2222, fpr=0.0, fnr=100.0),
        outcome_of(paper_cell("table-1", "wisdm", "Median", "lie"), 96.0),
        outcome_of(paper_cell("table-1", "wisdm", "FedCAP", "min-max"), 94.0, dacc=72.2, fpr=0.0, fnr=100.0),
    ]
    summary = results_pages(Recorded(runs), Grids())["RESULTS.md"]
    # Accuracy, DAcc, FPR and FNR of two runs, two of them wrong; the median's accuracy is too high.
    rows = {line.split("|")[1].strip(): line.split("|")[2:6] for line in summary.splitlines() if "|" in line}
    counts = [int(text.replace(",", "")) for text in rows["**all, each run once**"]]
    assert counts[1:] == [3, 6, 3]
    anchor = "results/paper.md#table-ii-rules-with-bucketing-and-with-gas"
    assert rows[f"[Table II: rules with Bucketing and with GAS]({anchor})"]
    words = " ".join(summary.split())
    assert "6 of 8 on wisdm" in words
    assert "0 of 1 accuracies of other methods agree" in words
    assert "On wisdm it has the highest accuracy under 0 of 1 attacks" in words
    assert "No other method has finished on cifar10 and handwritten62." in words
    # 96 % of 1,038 test samples: the root of 0.96 · 0.04 / 1,038 is 0.6 points.
    assert "at most 2.0 points behind. The standard error of one accuracy is 0.6 points." in words
    assert "not removed: min-max on wisdm (100 %, paper 0 %)" in words
    assert "lie on wisdm (FedCAP 94.0, Median 96.0)" in words
    assert "3 of 3 finished runs have one seed" in words


def test_a_figure_counts_as_judged_if_another_item_shows_it_without_the_papers() -> None:
    runs = [
        outcome_of(paper_cell("table-1", "wisdm", "FedCAP", "ipm"), 94.0),
        outcome_of(paper_cell("table-1", "wisdm", "Mean", "model-replacement"), 40.5),
    ]  # `alpha` and `baselines` show the same runs, without figures of the paper.
    words = " ".join(results_pages(Recorded(runs), Grids())["RESULTS.md"].split())
    assert "1 of 1 on wisdm agree" in words
    assert (
        "Of those that differ by more than 2 points, 1 of 1 have an explanation, and 0 a partial one" in words
    )


def test_the_runs_of_windows_explain_a_part_of_the_excess_on_wisdm() -> None:
    windows = [each for each in find("traps").cells if each.panel == WINDOWS]
    runs = [
        outcome_of(each, tacc, curve=Curve([25], [None], [tacc]))
        for each, tacc in zip(windows, (95.2, 93.9), strict=True)
    ]
    runs.append(outcome_of(paper_cell("table-1", "wisdm", "M-Krum", "lie"), 97.0))
    made = results_pages(Recorded(runs), Grids())
    assert "FedCAP has 93.9 % under Min-Max after 25 rounds, and 95.2 % with" in made[PAPER_PAGE]
    assert "more than 2 points, 0 of 1 have an explanation, and 1 a partial one" in made["RESULTS.md"]


def test_the_gain_of_picked_options_is_measured_on_the_other_seeds() -> None:
    picked = [each for each in find("traps").cells if each.panel.startswith("FedCAP's options")]
    under = [each for each in picked if each.row == "lie"]
    runs = []
    for place, each in enumerate(under):
        one = each.column == "one setting"
        for seed in range(3):
            lucky = 6.0 if place == 4 and seed == 0 else 1.0
            runs.append(outcome_of(each, 90.0 if one else 90.0 + lucky, seed))
    page = reproducing_page(Recorded(runs))
    assert f"| lie | {under[4].column} | 6.0 | 1.0 | 2 |" in page


def test_the_row_of_table_3_that_contradicts_itself_is_found() -> None:
    page = reproducing_page(Recorded([]))
    assert "| emnist | sign-flipping | 80 | 20 | 66.67 |" in page
    assert page.count("| emnist |") == 1


def test_the_pages_of_the_repository_are_those_of_its_outcomes() -> None:
    for name, text in pages(REPOSITORY / "results").items():
        assert (REPOSITORY / "docs" / name).read_text() == text, "run: make results"


def test_the_grid_of_every_method_has_a_section_and_a_picture(tmp_path: Path) -> None:
    found = [*over_seeds("fedcap", "ipm", 97.0, 96.0), *over_seeds("fedavg", "ipm", 10.0, 12.0)]
    folder = save([], tmp_path / "results")
    save_outcomes(found, folder / "headline.jsonl.gz")
    made = pages(folder)
    assert "On digits FedCAP, the paper's preset, leads under all 1 attacks." in made[MATRIX_PAGE]
    assert "| fedavg | – | +85.5 | 1 (0) | 0 (0) | 1 | 2 |" in made["RESULTS.md"]
    assert tmp_path / "figures" / "headline-digits.png" in write_pages(folder, tmp_path)


def test_an_attack_that_repeats_another_is_left_out() -> None:
    def both(attack: str, ours: float, theirs: float) -> Finished:
        return [*over_seeds("fedcap", attack, ours), *over_seeds("fedavg", attack, theirs)]

    found = [*both("lie", 97.0, 95.0), *both("lie-unbounded", 97.0, 95.0), *both("ipm", 97.0, 10.0)]
    more = over_seeds("ditto", "lie", 96.0)  # a method, or seeds, that the repeated attack does not have
    alone = over_seeds("local", "lie", 90.0)
    distinct, repeats = without_repeats([*found, *more])
    assert repeats == {"lie-unbounded": "lie"}
    assert [place["attack"] for place, _ in distinct] == ["lie", "lie", "ipm", "ipm", "lie"]
    # One method of four that has run so far does not make an attack a repetition.
    started = over_seeds("local", "mimic", 90.0)
    assert without_repeats([*found, *more, *alone, *started])[1] == {"lie-unbounded": "lie"}


def test_rivals_lead_where_their_mean_is_higher_and_clearly_where_the_interval_is_above_zero() -> None:
    found = [
        *over_seeds("fedcap", "ipm", 90.0, 91.0, 92.0),
        *over_seeds("fedavg", "ipm", 92.0, 93.1, 94.0),
        *over_seeds("fedcap", "lie", 90.0, 91.0, 92.0),
        *over_seeds("fedavg", "lie", 99.0, 90.0, 90.0),
        *over_seeds("fedcap", "cuckoo", 90.0),
        *over_seeds("fedavg", "cuckoo", 80.0),
        *over_seeds("fedcap, hardened", "cuckoo", 95.0),
    ]
    (panel,) = make_panels(found)
    assert [(lead.attack, lead.rival, lead.is_clear) for lead in leads(panel)] == [
        ("ipm", "fedavg", True),
        ("lie", "fedavg", False),
    ]


def test_from_ten_seeds_on_a_difference_is_clear_by_its_corrected_p_value() -> None:
    ours = [95.0, 95.1, 95.2, 95.3, 95.4, 95.5, 95.6, 95.7, 95.8, 95.9]
    rival = [own - 0.1 * (seed + 1) for seed, own in enumerate(ours)]
    mixed = [own - (1.0 if seed < 8 else -1.0) for seed, own in enumerate(ours)]
    found = [
        *over_seeds("fedcap", "ipm", *ours),
        *over_seeds("fedavg", "ipm", *rival),
        *over_seeds("fedcap", "lie", *ours),
        *over_seeds("fedavg", "lie", *mixed),
    ]
    (panel,) = make_panels(found)
    gaps = panel.differences("fedcap", "fedavg")
    # Ten equal signs of ten: 2/2¹⁰, twice that after Holm. Eight equal ones: 112/2¹⁰.
    assert gaps["ipm"].p_holm == pytest.approx(2 * 2 / 1024)
    assert gaps["lie"].p_holm == pytest.approx(stats.binomtest(8, 10).pvalue)
    assert gaps["lie"].half_width is not None
    assert [is_clear(gaps[attack]) for attack in ("ipm", "lie")] == [True, False]
    ((name, calm, mean, higher, lower, attacks, seeds),) = duels_table(panel).cells()
    assert (name, calm, mean, higher, lower) == ("fedavg", "–", "+0.6", "2 (1)", "0 (0)")
    assert (attacks, seeds) == ("2", "10")
    # 0.55 points under ipm, and 0.6 under lie.
    assert mean_margins(panel) == pytest.approx({"fedavg": 0.575})
    few = make_panels([(place, run) for place, run in found if int(place["seed"]) < 5])[0]
    assert is_clear(few.differences("fedcap", "fedavg")["ipm"])


def test_the_worst_attack_is_over_the_variants_of_all_grids() -> None:
    def run(method: str, attack: str, tacc: float, digest: str) -> Finished:
        return over_seeds(method, attack, tacc, digest=digest)

    matrix = [
        *run("fedcap", "none", 97.0, "a"),
        *run("fedcap", "frame", 93.0, "b"),
        *run("fedcap, hardened", "frame", 94.0, "c"),
        *run("fltrust", "frame", 95.0, "d"),
    ]
    variants = [
        *run("fedcap", "frame, drag", 93.0, "b"),  # another name of the same run
        *run("fedcap", "cuckoo, longest", 88.0, "e"),
        *run("no removal", "cuckoo, longest", 50.0, "f"),
    ]
    trained = run("hardened", "crowd", 92.0, "g")
    rivals = run("fltrust", "cuckoo, longest", 94.9, "h")
    cases = worst_cases(Grids(matrix, variants, rivals, trained))
    assert [(case.method, case.attack, case.attacks) for case in cases] == [
        ("fltrust", "cuckoo, longest", 2),
        ("hardened", "crowd", 2),
        ("fedcap", "cuckoo, longest", 2),
    ]
    assert [case.common_worst.mean for case in cases] == [95.0, 94.0, 93.0]


def test_pages_are_not_written_without_outcomes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "RESULTS.md").write_text("figures of somebody else")
    for results in (tmp_path / "absent", tmp_path / "docs"):
        code = main(["write", "--results", str(results), "--docs", str(tmp_path / "docs")])
        assert (code, capsys.readouterr().err.count("\n")) == (2, 1)
        assert (tmp_path / "docs" / "RESULTS.md").read_text() == "figures of somebody else"


# --- Files of outcomes


def test_saved_outcomes_are_read_back_and_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    settings = {"seed": 0, "training": {"lr": 0.1, "epochs": 2}}
    found = [
        *over_seeds("fedcap", "ipm", 97.1, 96.2, settings=settings, provenance={"versions": {"torch": "2"}}),
        *over_seeds("local", "lie", 90.0, settings={"training": {"lr": 0.1}}, provenance={"versions": {}}),
    ]
    for name in ("grid.jsonl", "grid.jsonl.gz", "again.jsonl.gz"):
        save_outcomes(found, tmp_path / name)
    assert (tmp_path / "grid.jsonl.gz").read_bytes() == (tmp_path / "again.jsonl.gz").read_bytes()
    for name in ("grid.jsonl", "grid.jsonl.gz"):
        assert read_outcomes(tmp_path / name) == [(at, replace(run, places=[at])) for at, run in found]


def test_the_factored_format_of_older_versions_is_read(tmp_path: Path) -> None:
    (place, run), *_ = over_seeds("fedcap", "ipm", 97.1)
    line = {**json.loads(run.to_json()), "place": place, "settings": {"seed": 3}, "provenance": {}}
    line["clients"] = {"id": ["a", "b"], "malicious": [False, True], "shared": [1.0, None]}
    line["clients"] |= {"personal": [2.0, 3.0], "removed": [None, 4]}
    common = {"settings": {"training": {"lr": 0.1}, "rounds": 5}, "provenance": {"computes": 1}}
    path = tmp_path / "old.jsonl"
    path.write_text(f"{json.dumps(common)}\n{json.dumps(line)}\n")
    ((at, found),) = read_outcomes(path)
    assert at == place
    assert found.settings == {"seed": 3, "training": {"lr": 0.1}, "rounds": 5}
    assert found.provenance == {"computes": 1}
    assert [(client.id, client.removed) for client in found.clients] == [("a", None), ("b", 4)]


@pytest.mark.parametrize("content", [b"{}\n{}\n", b"\x1f\x8b123", b"\xff", b'{"digest": 3}\n'])
def test_a_damaged_file_of_outcomes_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "grid.jsonl.gz").write_bytes(content)
    with refused("bad-file"):
        read_outcomes(tmp_path / "grid.jsonl.gz")


def test_outcomes_in_the_repository_are_small() -> None:
    for path in (REPOSITORY / "results").glob("*.json"):
        assert path.stat().st_size <= 20_000, path.name


# --- Commands


@pytest.mark.usefixtures("data_folder")
def test_a_run_is_played_once_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *TRAP, "--workers", "1", "--results", "kept"]) == 0
    (path,) = Path("kept").iterdir()
    assert path.stem == Outcome.from_json(path.read_text()).digest[:16]
    before = path.stat().st_mtime_ns
    # An outcome in the folder of results counts as done, wherever its run is.
    assert main(["run", *TRAP, "--out", "elsewhere", "--results", "kept"]) == 0
    assert path.stat().st_mtime_ns == before
    assert "1 of 1 run done" in capsys.readouterr().out
    assert not list(Path("elsewhere").rglob("config.toml"))
    assert main(["show", *TRAP, "--results", "kept", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["cells"]
    assert found["ours"] == Outcome.from_json(path.read_text()).tacc


def test_show_needs_no_data_and_draws(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = save(made_up(find("alpha").only("wisdm").cells), data_folder / "results")
    given = ["--results", str(results)]
    assert main(["show", *given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() == items().keys()
    assert found["alpha"]["wisdm"] == {"finished": 8, "of": 8}
    assert found["table-4"] == {"cifar10": {"finished": 0, "of": 25}}
    figures = data_folder / "figures"
    assert main(["show", "alpha", *given, "--figures", str(figures)]) == 0
    assert sorted(path.name for path in figures.iterdir()) == [
        f"alpha-wisdm.{kind}" for kind in ("pdf", "png", "svg")
    ]


def test_where_emnist_is_absent_handwritten62_replaces_it(
    data_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    y = np.repeat(np.arange(62), 40)
    x = np.random.default_rng(0).integers(0, 255, (len(y), 28, 28), dtype=np.uint8)
    np.savez(data_folder / "handwritten62.npz", x=x, y=y)
    asked = ["run", "table-3", "--attack", "ipm", "--column", "FedCAP", "--dry-run", "--out", "runs"]
    assert main(asked) == 0
    printed = capsys.readouterr()
    assert "1 run: 0 done, 1 would be played\n  handwritten62 · " in printed.out
    assert "emnist is not here: handwritten62 replaces it" in printed.err
    assert "leaving out cifar10" in printed.err


def test_the_plan_has_every_planned_table_and_runs_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--all", "--dry-run"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [str(step) for step in PLAN] == printed
    played = {name for step in PLAN for name in step.command.split() if name in items()}
    assert items().keys() - played == {"auto-alpha", "malicious-share", "traps"}
    ran: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 2 if "cifar10" in command else 0)

    monkeypatch.setattr(subprocess, "run", run)
    assert main(["run", "--all", "--workers", "1"]) == 2
    assert [command[1:3] for command in ran] == [
        ["-m", "reproduction" if step.command.startswith("python") else "fedcap"] for step in PLAN
    ]
    assert all(command[-2:] == ["--workers", "1"] for command in ran)


@pytest.mark.usefixtures("data_folder")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["run"], "nothing to run"),
        (["run", "--all", "table-1"], "leave out names"),
        (["run", "table-4"], "cifar10"),
        (["run", "table-1", "--dataset", "emnist"], "emnist"),
        (["show", "tabel-1"], "did you mean 'table-1'"),
        (["show", "traps", "--seeds", "x"], "seeds are whole numbers"),
    ],
)
def test_a_mistake_is_one_line(asked: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(asked) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
