"""The paper's tables and figures as lists of runs: the settings, and the printed figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import refused

import fedcap
from fedcap import Experiment
from fedcap.experiments.grid import Cell, Grid
from fedcap.runs import settings_key
from reproduction import published
from reproduction.items import find, items
from reproduction.recorded import Recorded, grid_cells
from reproduction.setups import DATASETS, STAND_IN

GAINS = {
    ("cifar10", "lie"): (0.67, 0.96, 2.19, 2.76, 2.38, 2.19),
    ("cifar10", "ipm"): (-71.43, 0, -64.10, 7.71, -25.53, 46.28),
    ("emnist", "lie"): (22.14, 0, 24.44, 0, 27.41, 0),
    ("emnist", "ipm"): (8.54, 1.90, -55.28, -61.86, -8.46, -16.19),
    ("wisdm", "lie"): (-0.99, 0.15, 0.44, 1.39, 1.71, 2.31),
    ("wisdm", "ipm"): (-54.41, -1.86, -42.73, 10.39, -45.02, 11.17),
}
"""The gains that Table II prints: how much Bucketing and GAS add to the rule alone."""


def test_table_2_less_its_gains_is_table_1() -> None:
    for place, gains in GAINS.items():
        alone = [published.TABLE_1[place][at] for at in (1, 1, 2, 2, 3, 3)]
        for rule, with_wrapper, gain in zip(alone, published.TABLE_2[place], gains, strict=False):
            assert with_wrapper - rule == pytest.approx(gain, abs=0.006), place


def test_fedcap_has_the_same_accuracy_wherever_the_paper_prints_it() -> None:
    for (dataset, attack), figures in published.TABLE_1.items():
        assert figures[-1] == max(figures) == published.TABLE_3[dataset, attack][0]
    for (dataset, attack), figures in published.TABLE_2.items():
        assert figures[-1] == published.TABLE_3[dataset, attack][0]
    ablation = dict(zip(published.TABLE_4_COLUMNS, published.TABLE_4["FedCAP"], strict=True))
    assert ablation == {attack: published.TABLE_3["cifar10", attack][0] for attack in ablation}


def key(**settings: Any) -> str:
    return settings_key(Experiment(seed=0, **settings).settings())


def keys(name: str, **only: str) -> set[str]:
    return {cell.key for cell in grid_cells(find(name).only(**only).cells, [0])}


def with_options(alpha: float, phi: float, lambda_: float) -> dict[str, Any]:
    return {"name": "fedcap", "alpha": alpha, "phi": phi, "lambda_": lambda_}


def test_cells_have_the_settings_of_the_paper() -> None:
    def wisdm(attack: str, method: Any) -> str:
        return key(dataset="wisdm", method=method, attack=attack, rounds=100)

    assert keys("table-1", dataset="wisdm", attack="ipm", column="FedCAP") == {
        wisdm("ipm", with_options(2, 0.1, 0.1))
    }
    assert keys("table-3", dataset="wisdm", attack="min-sum", column="FedCAP") == {
        wisdm("min-sum", with_options(2, 0.3, 0.5))
    }
    assert keys("table-1", dataset="wisdm", attack="lie", column="Median") == {
        wisdm("lie", {"name": "fedavg", "rule": "median"})
    }
    bucketing = {"name": "bucketing", "rule": "multi-krum", "size": 2}
    assert keys("table-2", dataset="wisdm", attack="lie", column="Bucketing(M-Krum)") == {
        wisdm("lie", {"name": "fedavg", "rule": bucketing})
    }
    assert keys("baselines", dataset="wisdm", attack="none", column="FedFomo") == {
        wisdm("none", {"name": "fedfomo", "models": 18})
    }
    emnist = {"dataset": "handwritten62", "attack": "ipm", "eval_every": 5}
    assert keys("ditto-rules", dataset="handwritten62", attack="ipm", column="Ditto + ClusteredFL") == {
        key(method={"name": "ditto", "rule": "clustered", "lambda_": 0.5}, **emnist)
    }
    assert keys("table-4", attack="ipm", column="customised") == {
        key(
            dataset="cifar10",
            attack="ipm",
            method={**with_options(10, 0.3, 0.1), "calibrate": False, "detect": False, "personalise": False},
        )
    }


def test_one_setting_is_the_same_under_every_attack() -> None:
    for dataset in (*DATASETS, *STAND_IN.values()):
        column = find("table-1").only(dataset=dataset, column="FedCAP, one setting")
        methods = [cell.experiment.settings()["method"] for cell in grid_cells(column.cells, [0])]
        assert methods == [Experiment(dataset=dataset, method="fedcap").settings()["method"]] * 6


def test_every_cell_can_be_planned_without_its_data() -> None:
    counts = {name: Recorded([]).progress(found.cells) for name, found in items().items()}
    assert all(done == 0 < whole for done, whole in counts.values())
    assert counts["table-4"] == (0, 25)


def test_tables_share_their_runs() -> None:
    alone = keys("table-3", dataset="wisdm", column="FedCAP")
    assert len(alone) == 7
    assert len(alone & keys("table-1", dataset="wisdm", column="FedCAP")) == 6
    both = [*find("table-3").only("wisdm").cells, *find("table-1").only("wisdm").cells]
    assert len({cell.key for cell in grid_cells(both, [0])}) == len(grid_cells(both, [0]))


def options(cell: Cell) -> dict[str, Any]:
    """Return the options of a cell's method, without those that belong to a preset."""
    return {name: cell.experiment.settings()["method"][name] for name in ("alpha", "phi", "lambda_")}


@pytest.mark.parametrize(("attack", "rounds", "read"), [("ipm", 12, {12}), ("sign-flipping", 25, {14, 25})])
def test_presets_are_compared_with_the_same_options_after_the_same_rounds(
    attack: str, rounds: int, read: set[int]
) -> None:
    paper, hardened = (
        find("hardened").only("cifar10", name, attack).cells for name in ("paper's", "hardened")
    )
    (theirs,), (ours,) = grid_cells(paper, [0]), grid_cells(hardened, [0])
    assert {theirs.key} == keys("table-3", dataset="cifar10", column="FedCAP", attack=attack)
    assert (theirs.experiment.rounds, ours.experiment.rounds) == (100, rounds)
    assert options(theirs) == options(ours)
    for cells in (paper, hardened):
        assert {e.read for e in cells if "accuracy" in e.column} == {f"tacc_after_{n}" for n in read}


def test_presets_on_letters_differ_in_the_preset_alone_with_each_learning_rate() -> None:
    found = grid_cells(find("hardened").only("handwritten62", attack="cuckoo").cells, [0])
    assert {
        (cell.experiment.settings()["method"]["preset"], cell.experiment.settings()["training"]["lr"])
        for cell in found
    } == {("paper", 0.05), ("hardened", 0.05), ("paper", 0.01), ("hardened", 0.01)}
    assert {cell.experiment.rounds for cell in found} == {20}
    assert len({str(options(cell)) for cell in found}) == 1
    assert {cell.place.get("training.lr") for cell in found} == {None, "0.01"}


def test_alpha_without_tuning_is_compared_with_the_chosen_alpha_after_the_same_rounds() -> None:
    chosen, auto = (find("auto-alpha").only("wisdm", name).cells for name in ("chosen", "auto"))
    (theirs,), (ours,) = grid_cells(chosen, [0]), grid_cells(auto, [0])
    assert {theirs.key} == keys("table-3", dataset="wisdm", column="FedCAP", attack="none")
    assert chosen[0].read == auto[0].read == "tacc_after_25"
    assert ours.experiment.rounds == 25
    assert options(theirs) == {**options(ours), "alpha": 2.0}
    assert options(ours)["alpha"] == "auto"


def test_seeds_and_rounds_make_other_runs() -> None:
    entries = find("table-3").only("wisdm", "FedCAP", "ipm").cells
    found = grid_cells(entries, [0, 2], rounds=7)
    assert [cell.experiment.seed for cell in found] == [0, 2]
    assert {cell.experiment.rounds for cell in found} == {7}
    assert len({cell.key for cell in found} | {grid_cells(entries, [0])[0].key}) == 3


def test_an_unknown_table_column_or_data_set_answers_with_those_there_are() -> None:
    with refused("unknown-name"):
        find("tabel-3")
    with refused("unknown-name"):
        find("table-1").only(column="Krumm")
    with refused("unknown-name"):
        find("table-1").only(dataset="mnist")
    assert {entry.column for entry in find("table-1").only(column="fltrust").cells} == {"FLTrust"}


@pytest.mark.parametrize(("name", "seeds"), [("headline", 10), ("headline-handwritten62", 3)])
def test_the_grids_of_every_attack_can_be_planned(name: str, seeds: int) -> None:
    found = Grid.read(Path(__file__).parents[1] / "examples" / f"{name}.toml", {}, {}).cells()
    methods = {cell.place["method"] for cell in found}
    attacks = {cell.place["attack"] for cell in found}
    assert len(found) == len(methods) * len(attacks) * seeds
    assert attacks - {"none"} < set(fedcap.attacks.names())
    assert ("lie-unbounded" in attacks) is (name != "headline")  # at full participation it is the same as lie
    assert {"fedcap", "fedcap, hardened", "fltrust", "ditto"} <= methods
