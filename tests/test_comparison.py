"""A grid's outcomes, compared: what a reader of its tables may rely on."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import refused
from outcome_tools import outcome, over_seeds, place
from scipy import stats

from fedcap.experiments.comparison import Comparison
from fedcap.report.panel import Finished
from fedcap.report.tables import Table

SMALL: Finished = [
    *over_seeds("fedcap", "none", 97.0, 97.4, 97.2),
    *over_seeds("fedcap", "ipm", 96.0, 96.2, 96.4, fpr=0.0, fnr=0.0, dacc=100.0, rounds_to_removal=1.0),
    *over_seeds("fedcap", "lie", 96.5, 96.3, 96.1, fpr=10.0, fnr=50.0, dacc=75.0, rounds_to_removal=4.0),
    *over_seeds("fedavg", "none", 94.0, 94.2, 94.1),
    *over_seeds("fedavg", "ipm", 9.9, 9.9, 9.9, diverged=True),
    *over_seeds("fedavg", "lie", 90.0, 91.0, 95.0),
]


def table(made: Comparison, about: str) -> Table:
    (found,) = [table for table in made.tables() if about in table.title]
    return found


def lines(made: Comparison, about: str) -> dict[str, dict[str, str]]:
    """Return a table's cells as text, by its first column and its headings."""
    found = table(made, about)
    return {line[0]: dict(zip(found.columns, line, strict=True)) for line in found.cells()}


def test_a_cell_is_the_mean_over_seeds_and_half_of_its_interval() -> None:
    low, high = stats.t.interval(0.95, 2, np.mean([90, 91, 95]), stats.sem([90, 91, 95]))
    shown = lines(Comparison.of(SMALL), "accuracy")
    assert shown["fedavg"]["lie"] == f"92.0 ± {(high - low) / 2:.1f}" == "92.0 ± 6.6"
    assert shown["fedcap"]["no attack"] == "97.2 ± 0.5"
    assert "3 seeds (0, 1, 2)" in table(Comparison.of(SMALL), "accuracy").notes[0]


def test_an_interval_needs_three_seeds() -> None:
    alone = Comparison.of([pair for pair in SMALL if pair[0]["seed"] == "0"])
    assert lines(alone, "accuracy")["fedavg"]["lie"] == "90.0"
    assert table(alone, "accuracy").notes[0].endswith("in the last round: seed 0.")
    assert lines(alone, "difference")["fedavg"]["lie"] == "−6.5"
    two = Comparison.of([pair for pair in SMALL if pair[0]["seed"] != "2"])
    assert lines(two, "accuracy")["fedavg"]["lie"] == "90.5"
    assert lines(two, "difference")["fedavg"]["lie"] == "−5.9"
    assert "±" not in two.markdown()


def test_the_worst_attack_is_the_lowest_mean_and_no_attack_is_none() -> None:
    weak_alone = [*over_seeds("fedcap", "none", 50.0, 50.0), *over_seeds("fedcap", "lie", 96.0, 94.0)]
    made = Comparison.of([*weak_alone, *over_seeds("fedcap", "ipm", 97.0, 91.0)])
    assert lines(made, "accuracy")["fedcap"]["worst attack"] == "94.0, ipm"
    assert [row["attack"] for row in made.dicts() if row["worst_attack"]] == ["ipm"]


def test_with_an_attack_missing_the_worst_is_an_upper_bound() -> None:
    made = Comparison.of(
        [pair for pair in SMALL if (pair[0]["method"], pair[0]["attack"]) != ("fedavg", "ipm")]
    )
    shown = lines(made, "accuracy")["fedavg"]
    assert shown["ipm"] == "–"
    assert shown["worst attack"] == "≤ 92.0 ± 6.6, lie"
    assert any("has not finished" in note for note in table(made, "accuracy").notes)
    for about in ("accuracy", "worst clients"):
        assert any("≤ upper bound" in note for note in table(made, about).notes)


def test_a_method_of_which_nothing_has_finished_is_there_and_missing() -> None:
    made = Comparison.of(SMALL, planned=[place("ditto", "ipm", 0, "median"), *(at for at, _ in SMALL)])
    assert set(lines(made, "accuracy")["ditto+median"].values()) == {"ditto+median", "–"}
    assert lines(made, "accuracy")["fedavg"]["lie"] == "92.0 ± 6.6"


def test_diverged_runs_are_counted_marked_and_numbered() -> None:
    assert lines(Comparison.of(SMALL), "accuracy")["fedavg"]["ipm"] == "9.9 ± 0.0 †"
    some = [*SMALL[:-1], (SMALL[-1][0], outcome(10.0, diverged=True))]
    made = Comparison.of(some)
    assert lines(made, "accuracy")["fedavg"]["lie"].endswith("†1")
    assert lines(made, "accuracy")["fedavg"]["lie"].startswith("63.7 ")
    assert lines(made, "difference")["fedavg"]["lie"].endswith("†1")
    for about in ("accuracy", "difference", "worst clients"):
        assert any(note.startswith("† diverged") for note in table(made, about).notes)
    calm = Comparison.of([pair for pair in SMALL if pair[0]["attack"] != "ipm"])
    assert "†" not in calm.markdown()


def test_runs_that_stopped_without_clients_are_marked() -> None:
    made = Comparison.of(over_seeds("fedcap", "ipm", 50.0, 60.0, stopped="all were removed"))
    assert lines(made, "accuracy")["fedcap"]["ipm"] == "55.0 ‡"
    assert any(note.startswith("‡ stopped") for note in table(made, "accuracy").notes)


def test_methods_are_compared_over_the_seeds_that_both_have() -> None:
    ours = over_seeds("fedcap", "lie", 90.0, 92.0, 94.0)
    theirs = [
        (place("fedavg", "lie", seed), outcome(tacc)) for seed, tacc in ((1, 90.5), (2, 94.0), (7, 1.0))
    ]
    made = Comparison.of([*ours, *theirs])
    assert lines(made, "difference")["fedavg"]["lie"] == "−0.8 (2 of 4)"
    assert lines(made, "accuracy")["fedcap"]["lie"].endswith("(3 of 4)")
    (row,) = [row for row in made.dicts() if row["method"] == "fedavg"]
    assert (row["difference"], row["pairs"], row["seeds"], row["p"]) == (-0.75, 2, "1 2 7", 1.0)
    without = Comparison.of([*ours, (place("fedavg", "lie", 9), outcome(1.0))])
    assert lines(without, "difference")["fedavg"]["lie"] == "–"


def test_a_star_needs_six_seeds_and_a_small_p() -> None:
    def made(count: int) -> Comparison:
        ours = over_seeds("fedcap", "lie", *[90.0] * count)
        return Comparison.of([*ours, *over_seeds("fedavg", "lie", *[80.0 + seed for seed in range(count)])])

    five, six = made(5), made(6)
    assert "*" not in lines(five, "difference")["fedavg"]["lie"]
    assert not any("star" in note for note in table(five, "difference").notes)
    assert lines(six, "difference")["fedavg"]["lie"].endswith("*")
    assert any("A star: p < 0.05" in note for note in table(six, "difference").notes)


def test_p_values_are_adjusted_over_the_columns() -> None:
    six = [90.0] * 6
    found = [pair for attack in ("none", "ipm", "lie") for pair in over_seeds("fedcap", attack, *six)]
    found += over_seeds("fedavg", "none", *six)
    found += over_seeds("fedavg", "ipm", *[80.0] * 6)
    found += over_seeds("fedavg", "lie", 89, 89, 89, 89, 89, 91)
    p = {row["attack"]: (row["p"], row["p_holm"]) for row in Comparison.of(found).dicts() if row["against"]}
    # Of 64 choices of signs, 2 are as far out as ten points each time, 14 as four of six.
    assert p == {"ipm": (2 / 64, 6 / 64), "lie": (14 / 64, 28 / 64), "none": (1.0, 1.0)}


def test_the_worst_clients_are_shown_without_an_attack_and_under_the_worst() -> None:
    shown = lines(Comparison.of(SMALL), "worst clients")
    assert shown["fedcap"]["worst client, no attack"] == "89.2 ± 0.5"
    assert shown["fedcap"]["worst client, worst attack"].endswith(", ipm")
    assert shown["fedavg"]["10th percentile, worst attack"] == "5.9 ± 0.0 †, ipm"


def test_honest_removals_and_missed_malicious_clients_are_in_one_table() -> None:
    found = table(Comparison.of(SMALL), "detection")
    assert found.rows == [
        ["fedcap", "all attacks", 87.5, 5.0, 25.0, 2.5],
        ["fedcap", "no attack", None, None, None, None],
        ["fedcap", "ipm", 100.0, 0.0, 0.0, 1.0],
        ["fedcap", "lie", 75.0, 10.0, 50.0, 4.0],
    ]
    plain = Comparison.of([pair for pair in SMALL if pair[0]["method"] == "fedavg"])
    assert not [table for table in plain.tables() if "detection" in table.title]


def test_every_data_set_and_every_other_axis_has_tables_of_its_own() -> None:
    found = [
        (place("fedcap", "lie", 0, dataset="digits", rounds="30"), outcome(91.0)),
        (place("fedcap", "lie", 0, dataset="digits", rounds="60"), outcome(92.0)),
        (place("fedcap", "lie", 0, dataset="wisdm", rounds="30"), outcome(93.0)),
    ]
    made = Comparison.of(found)
    titles = {
        table.title.split(":")[0]: table.cells()[0][1] for table in made.tables() if "accuracy" in table.title
    }
    assert titles == {"digits, rounds 30": "91.0", "digits, rounds 60": "92.0", "wisdm, rounds 30": "93.0"}
    row = made.tidy()[1]
    assert (row["rounds"], row["result_rounds"], row["tacc"]) == ("60", 30, 92.0)


def test_options_of_a_method_that_vary_are_lines_and_those_of_an_attack_are_columns() -> None:
    found = [
        (place("fedcap", "lie", 0, **{"method.alpha": alpha, "attack.z": z}), outcome(tacc))
        for alpha, z, tacc in (("5", "1", 91.0), ("5", "2", 92.0), ("9", "1", 93.0), ("9", "2", 94.0))
    ]
    found += [
        (place("fedavg", "lie", 0, **{"method.alpha": "", "attack.z": "2"}), outcome(80.0)),
        (place("fedavg", "none", 0, **{"method.alpha": "", "attack.z": ""}), outcome(85.0)),
    ]
    assert lines(Comparison.of(found, against="fedavg"), "accuracy") == {
        "fedcap (alpha 5)": row("fedcap (alpha 5)", "–", "91.0", "92.0", "91.0, lie (z 1)"),
        "fedcap (alpha 9)": row("fedcap (alpha 9)", "–", "93.0", "94.0", "93.0, lie (z 1)"),
        "fedavg": row("fedavg", "85.0", "–", "80.0", "≤ 80.0, lie (z 2)"),
    }


def row(*cells: str) -> dict[str, str]:
    return dict(zip(("method", "no attack", "lie (z 1)", "lie (z 2)", "worst attack"), cells, strict=True))


def test_methods_are_compared_with_the_given_one_or_fedcap_or_none() -> None:
    assert Comparison.of(SMALL).against == "fedcap"
    assert "fedcap" in lines(Comparison.of(SMALL, against="fedavg"), "difference to fedavg")
    alone = Comparison.of(over_seeds("ditto", "lie", 90.0), figure="tacc_shared")
    assert alone.against is None
    assert lines(alone, "models that clients receive")["ditto"]["lie"] == "88.0"
    with refused("unknown-name", "against"):
        Comparison.of(SMALL, against="fedcup")
    with refused("unknown-name", "figure"):
        Comparison.of(SMALL, figure="best")


def test_what_is_saved_can_be_read_back(tmp_path: Path) -> None:
    from pyarrow import parquet

    made = Comparison.of(SMALL)
    written = made.save(tmp_path / "new")
    assert {path.name for path in written} == {path.name for path in (tmp_path / "new").iterdir()}
    read = list(csv.DictReader((tmp_path / "new" / "results.csv").open()))
    assert len(read) == len(SMALL)
    assert {(row["method"], row["attack"], row["seed"], float(row["tacc"])) for row in read} == {
        (at["method"], at["attack"], at["seed"], outcome.tacc) for at, outcome in SMALL
    }
    assert parquet.read_table(tmp_path / "new" / "results.parquet").to_pylist() == made.tidy()
    means = list(csv.DictReader((tmp_path / "new" / "means.csv").open()))
    assert [row["mean"] for row in means] == [str(row["mean"]) for row in made.dicts()]
    assert (tmp_path / "new" / "tables.md").read_text().count("| method |") == 4
    assert (tmp_path / "new" / "tables.tex").read_text().count(r"\begin{table}") == 4


def test_without_pyarrow_parquet_is_left_out_unless_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    made = Comparison.of(SMALL)
    assert "results.parquet" not in {path.name for path in made.save(tmp_path)}
    with refused("needs-extra", "parquet"):
        made.save(tmp_path, parquet=True)


def test_the_order_in_which_cells_finished_changes_no_figure() -> None:
    planned = [at for at, _ in SMALL]
    one, other = Comparison.of(SMALL, planned=planned), Comparison.of(SMALL[::-1], planned=planned)
    assert one.markdown() == other.markdown()
    assert one.dicts() == other.dicts()
