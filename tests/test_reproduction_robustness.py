"""The page on attackers who know the defence, from made-up outcomes with figures by hand."""

from __future__ import annotations

from typing import Any

import pytest
from outcome_tools import outcome, over_seeds, place

from fedcap.report.panel import Finished, Panel, make_panels
from fedcap.runs.outcome import ClientOutcome, Peaks
from fedcap.runs.rounds import RoundRecord
from reproduction.robustness import (
    Harm,
    harm,
    requirements_table,
    robustness_page,
    separation_table,
)


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
        *runs("no removal", "lie", 96.0, clients(100.0, 90.0, 0.0), peaks=peaks, **rates),
    ]


def requirements(found: Finished) -> list[list[str]]:
    [panel] = make_panels(found)
    return requirements_table(panel).cells()


def cells(page: str, heading: str, start: str) -> list[str]:
    """Return the cells of a row of the first table under a heading."""
    section = page.partition(f"## {heading}")[2].partition("\n## ")[0]
    row = next(line for line in section.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in row.strip("|").split("|")][1:]


def test_each_requirement_has_its_result(found: Finished) -> None:
    assert [line[1:] for line in requirements(found)] == [
        ["yes", "2.0 rounds at most"],
        ["yes", "lowest: -0.5, under no attack"],
        ["yes", "0 in 2 runs"],
        ["no", "cuckoo, longest (-4.0)"],
        ["yes", "lowest: -1.0, under cuckoo, longest"],
    ]


def test_a_requirement_that_is_missed_has_its_figures(found: Finished) -> None:
    rates = {"fpr": 7.1, "fnr": 17.0}
    people = [ClientOutcome("0", False, None, 99.0, 3), ClientOutcome("1", True, None, 0.0, None)]
    worse: Finished = [
        *runs("hardened", "lie", 90.0, people, rounds_to_removal=4.0, **rates),
        *runs("hardened", "sign-flipping", 90.0, people, rounds_to_removal=9.5, **rates),
        *runs("fedcap", "sign-flipping", 95.0, people, rounds_to_removal=7.5, **rates),
        *runs("hardened", "stealth", 90.0, people, **rates),
    ]
    lines = requirements([*found[:10], *worse])
    assert [line[1:] for line in lines[:4]] == [
        ["no", "lie (FNR 17, FPR 7.1, 4.0 rounds)"],
        ["no", "9.5 rounds, with the paper's preset 7.5"],
        ["no", "sign-flipping (-5.0)"],
        ["no", "stealth (2 in 2 runs)"],
    ]
    page = robustness_page([*found[:10], *worse])
    assert page.partition("## Requirements")[0].count("**Not met on digits**") == 5


def test_a_clients_gap_is_its_mean_over_the_runs_in_which_it_is_honest() -> None:
    alone = clients(90.0, 80.0, malicious=0)
    first = [ClientOutcome("0", False, None, 80.0, None), ClientOutcome("1", False, None, 84.0, None)]
    second = [ClientOutcome("0", False, None, 96.0, None), ClientOutcome("1", True, None, 0.0, None)]
    found = [
        *runs("local", "none", 85.0, alone),
        *runs("hardened", "none", 85.0, alone),
        (place("hardened", "lie", 0), outcome(82.0, clients=first)),
        (place("hardened", "lie", 1), outcome(96.0, clients=second)),
    ]
    [panel] = make_panels(found)
    # client 0: −10 and +6; client 1: +4 in the run in which it is honest
    assert harm(panel, "hardened", "lie") == Harm(
        lost=(3.0 - 6.0) / 2, worst_of_a_run=-2.0, worst_client=-2.0
    )


def test_separation_is_the_area_under_the_roc_curve_in_percent(found: Finished) -> None:
    panel: Panel
    [panel] = make_panels(found)
    lines = {line[0]: line[1:] for line in separation_table(panel).cells()}
    # of 3 and 1.5 against 1 and 2: three of four pairs are in order; equal scores count half
    assert lines["lie"] == ["75.0", "50.0"]
    assert lines["cuckoo, longest"] == ["–", "–"]


def test_peaks_are_the_largest_numbers_of_each_client() -> None:
    def record(**scores: dict[str, float | None]) -> Any:
        return type("Record", (), {"scores": {name.replace("_", "-"): at for name, at in scores.items()}})

    history: list[RoundRecord] = [
        record(norm={"a": 1.0, "b": None, "c": 9.0}),
        record(norm={"a": 3.0, "b": 2.0, "c": float("nan")}, robust_norm={"a": -1.0}),
    ]
    peaks = Peaks.of(history, frozenset({"c"}))
    assert peaks == {"norm": Peaks([3.0, 2.0], [9.0]), "robust-norm": Peaks([-1.0], [])}
