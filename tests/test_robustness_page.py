"""The page of what attackers who know the defence come to, from made-up outcomes with figures by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from outcome_tools import outcome, over_seeds, place
from paper_tools import save

from fedcap.experiments.comparison import Comparison
from fedcap.experiments.paper.harm import Harm, harm
from fedcap.experiments.paper.robustness import robustness_page
from fedcap.experiments.paper.writing import pages, write_pages
from fedcap.experiments.store import save_outcomes
from fedcap.report.panel import Finished
from fedcap.runs.outcome import ClientOutcome, Peaks
from fedcap.runs.rounds import RoundRecord


def clients(*personal: float, malicious: int = 1) -> list[ClientOutcome]:
    """Return clients 0, 1, … with these accuracies; the last ones are malicious."""
    honest = len(personal) - malicious
    return [ClientOutcome(str(k), k >= honest, None, value, None) for k, value in enumerate(personal)]


def runs(method: str, attack: str, tacc: float, people: list[ClientOutcome], **more: Any) -> Finished:
    return over_seeds(method, attack, tacc, tacc, clients=people, **more)


@pytest.fixture
def found() -> Finished:
    calm = clients(100.0, 90.0, 80.0, malicious=0)
    peaks = {"robust-norm": Peaks([1.0, 2.0], [3.0, 1.5]), "collusion": Peaks([0.0, 0.0], [0.0, 0.0])}
    rates = {"fpr": 0.0, "fnr": 0.0, "rounds_to_removal": 2.0}
    turned = {"fpr": 65.0, "fnr": 100.0}
    return [
        *runs("local", "none", 85.0, clients(95.0, 85.0, 75.0, malicious=0)),
        *runs("fedcap", "none", 97.0, calm, **rates),
        *runs("hardened", "none", 96.5, calm, **rates),
        *runs("fedcap", "cuckoo, longest", 88.5, clients(90.0, 80.0, 0.0), **turned),
        *runs("hardened", "cuckoo, longest", 94.0, clients(98.0, 84.0, 0.0), fpr=0.0, fnr=50.0),
        *runs("hardened", "lie", 96.5, clients(100.0, 90.0, 0.0), **rates),
        *runs("nobody removed", "lie", 96.0, clients(100.0, 90.0, 0.0), peaks=peaks, **rates),
    ]


def test_the_finding_has_the_figures_of_both_presets(found: Finished) -> None:
    page = " ".join(robustness_page(found).split())
    assert (
        "the paper's FedCAP removes 65 % of the honest clients and 0 % of the attackers, and falls from"
        in page
    )
    assert "97.0 % to 88.5" in page
    assert "the hardened one removes 0 % of the honest clients and 50 % of the attackers" in page


def test_what_was_asked_and_not_reached_stands_at_the_top(found: Finished) -> None:
    head, _, _ = robustness_page(found).partition("## What was asked")
    assert "FNR 0 and FPR 0" not in head
    late = runs("hardened", "ipm", 96.5, clients(100.0, 90.0, 0.0), fpr=0.0, fnr=0.0, rounds_to_removal=4.0)
    head, _, _ = robustness_page([*found, *late]).partition("## What was asked")
    assert "**Not reached on digits**: FNR 0 and FPR 0 under lie, ipm, within 3 rounds." in head
    assert "ipm (FNR 0, FPR 0.0, 4.0 rounds)" in head


def test_what_gets_through_is_told_with_its_cost(found: Finished) -> None:
    left = robustness_page(found).partition("## What still gets through")[2]
    row = next(line for line in left.splitlines() if line.startswith("| cuckoo, longest"))
    # 50 % left, none removed; (100 − 98 + 90 − 84) / 2 points lost; the worst is 84 − 85 above Local
    assert [cell.strip() for cell in row.strip("|").split("|")][1:] == ["50.0", "0.0", "4.0", "-1.0", "-1.0"]
    assert "| lie" not in left  # all attackers found, nothing lost


def test_attackers_who_train_against_the_method_have_their_section(tmp_path: Path, found: Finished) -> None:
    crowded = [
        *(run for run in found if run[0]["attack"] == "none"),
        *runs("local", "crowd", 84.0, clients(94.0, 84.0, 0.0)),
        *runs("hardened", "crowd", 92.0, clients(97.0, 79.0, 0.0), fpr=0.0, fnr=100.0),
    ]
    assert "Attackers who train" not in robustness_page(found)
    page = robustness_page(found, trained=crowded)
    assert "(#attackers-who-train-against-it)" in page.partition("## What was asked")[0]
    table = page.partition("## Attackers who train against it")[2].partition("\n## ")[0]
    row = next(line for line in table.splitlines() if line.startswith("| hardened"))
    # (100 − 97 + 90 − 79) / 2 points lost; the worst client is 79 − 85 above Local
    assert [c.strip() for c in row.strip("|").split("|")][1:] == [
        "96.5",
        "92.0",
        "7.0",
        "100.0",
        "0.0",
        "-6.0",
    ]
    folder = save([], tmp_path / "results")
    save_outcomes(found, folder / "robustness.jsonl.gz")
    save_outcomes(crowded, folder / "own-attack.jsonl.gz")
    assert pages(folder)["ROBUSTNESS.md"] == page


def test_each_scores_separation_is_in_percent(found: Finished) -> None:
    table = robustness_page(found).partition("## What each score can tell")[2]
    row = next(line for line in table.splitlines() if line.startswith("| lie"))
    assert [cell.strip() for cell in row.strip("|").split("|")][1:] == ["75.0", "50.0"]


def test_the_page_is_written_with_its_curves_where_there_are_runs(tmp_path: Path, found: Finished) -> None:
    folder = save([], tmp_path / "results")
    assert "ROBUSTNESS.md" not in pages(folder)
    save_outcomes(found, folder / "robustness.jsonl.gz")
    assert pages(folder)["ROBUSTNESS.md"] == robustness_page(found)
    written = write_pages(folder, tmp_path)
    assert tmp_path / "ROBUSTNESS.md" in written
    assert tmp_path / "figures" / "roc-published.png" in written


def test_peaks_are_the_largest_numbers_of_each_client(found: Finished) -> None:
    def record(**scores: dict[str, float | None]) -> Any:
        return type("Record", (), {"scores": {name.replace("_", "-"): at for name, at in scores.items()}})

    history: list[RoundRecord] = [
        record(norm={"a": 1.0, "b": None, "c": 9.0}),
        record(norm={"a": 3.0, "b": 2.0, "c": float("nan")}, robust_norm={"a": -1.0}),
    ]
    peaks = Peaks.of(history, frozenset({"c"}))
    assert peaks == {"norm": Peaks([3.0, 2.0], [9.0]), "robust-norm": Peaks([-1.0], [])}


def asked(found: Finished) -> list[list[str]]:
    table = robustness_page(found).partition("## What was asked")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    return [[part.strip() for part in line.strip("|").split("|")] for line in lines]


def test_what_was_asked_stands_beside_what_came_out(found: Finished) -> None:
    assert asked(found) == [
        ["FNR 0 and FPR 0 under lie, within 3 rounds", "yes", "2.0 rounds at most"],
        [
            "accuracy nowhere more than 0.5 points below the paper's preset",
            "yes",
            "-0.5 at the lowest, under no attack",
        ],
        [
            "under attackers who know it, at most one honest client removed in five runs",
            "yes",
            "0 in 2 runs",
        ],
        [
            "under attackers who know it, accuracy within 3 points of no attack",
            "no",
            "cuckoo, longest (-4.0)",
        ],
        [
            "under attackers who know it, no honest client over 3 points below its own Local, over seeds",
            "yes",
            "-1.0 at the lowest, under cuckoo, longest",
        ],
    ]


def test_bars_that_are_missed_are_told_with_their_figures(found: Finished) -> None:
    rates = {"fpr": 7.1, "fnr": 17.0}
    people = [ClientOutcome("0", False, None, 99.0, 3), ClientOutcome("1", True, None, 0.0, None)]
    worse: Finished = [
        *runs("hardened", "lie", 90.0, people, rounds_to_removal=4.0, **rates),
        *runs("hardened", "sign-flipping", 90.0, people, rounds_to_removal=9.5, **rates),
        *runs("fedcap", "sign-flipping", 95.0, people, rounds_to_removal=7.5, **rates),
        *runs("hardened", "stealth", 90.0, people, **rates),
    ]
    said = {line[0].partition(" ")[0]: line[1:] for line in asked([*found[:6], *worse])}
    assert said["FNR"] == ["no", "lie (FNR 17, FPR 7.1, 4.0 rounds)"]
    assert said["sign-flipping"] == ["no", "9.5 rounds, with the paper's preset 7.5"]
    assert said["accuracy"] == ["no", "sign-flipping (-5.0)"]
    removed = next(line for line in asked([*found[:6], *worse]) if "honest client removed" in line[0])
    assert removed[1:] == ["no", "stealth (2 in 2 runs)"]


def test_a_clients_gap_is_its_own_mean_over_the_runs_in_which_it_is_honest() -> None:
    alone = clients(90.0, 80.0, malicious=0)
    first = [ClientOutcome("0", False, None, 80.0, None), ClientOutcome("1", False, None, 84.0, None)]
    second = [ClientOutcome("0", False, None, 96.0, None), ClientOutcome("1", True, None, 0.0, None)]
    found = [
        *runs("local", "none", 85.0, alone),
        *runs("hardened", "none", 85.0, alone),
        (place("hardened", "lie", 0), outcome(82.0, clients=first)),
        (place("hardened", "lie", 1), outcome(96.0, clients=second)),
    ]
    [panel] = Comparison.of(found).panels
    # client 0: −10 and +6; client 1: +4 in the run in which it is honest
    assert harm(panel, "hardened", "lie") == Harm(
        lost=(3.0 - 6.0) / 2, worst_of_a_run=-2.0, worst_client=-2.0
    )


def test_every_method_and_other_data_have_their_sections(found: Finished) -> None:
    rest = [*over_seeds("krum", "cuckoo", 60.0, 62.0), *over_seeds("krum", "lie", 70.0, 72.0)]
    page = robustness_page(found, rest)
    table = page.partition("## Every method")[2]
    assert [line for line in table.splitlines() if line.startswith("| krum |")]
    assert "cuckoo" in table
    assert "| lie" not in table
    other = [(place("hardened", "none", 0, dataset="wisdm"), outcome(94.0))]
    assert "## wisdm" in robustness_page([*found, *other])
    paper = [(place("fedcap", "none", 0, dataset="wisdm"), outcome(94.0))]
    assert "## wisdm" not in robustness_page([*found, *paper])


def test_whoever_is_removed_among_honest_clients_is_counted(found: Finished) -> None:
    people = [ClientOutcome("0", False, None, 99.0, 3), ClientOutcome("1", False, None, 90.0, None)]
    honest = [
        (place("hardened", "none", seed, **{"training.lr": lr}), outcome(94.5, clients=people))
        for lr in ("0.1", "0.3")
        for seed in range(3)
    ]
    usual = [(place("hardened", "none", 0, dataset="wisdm"), outcome(94.0, clients=people[1:]))]
    section = robustness_page(found, (), [honest, usual]).partition("## Among honest clients only")[2]
    assert "7 runs, 6 clients removed" in " ".join(section.split())
    assert "| training.lr=0.3 | 3 | 3 | 94.5 |" in section
    assert "| wisdm | as usual | 1 | 0 | 94.0 |" in section
