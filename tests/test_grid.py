"""The cells of a grid: which there are, what they are called, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from grid_tools import TINY, Here, Notes
from helpers import refused
from python_tools import Louder, Plain, here

import fedcap
from fedcap.experiments.grid import Cell, Grid, parse_seeds
from fedcap.methods.fedavg import FedAvg
from fedcap.methods.fedcap import FedCAP
from fedcap.simulation import Experiment


def named(cells: list[Cell]) -> list[str]:
    return [str(cell) for cell in cells]


def digest(**settings: object) -> str:
    return Experiment(**settings).digest()


def test_cells_are_all_combinations_a_seed_after_the_other() -> None:
    cells = Grid(methods=["local", "fedcap"], attacks=["none", "IPM"], seeds="0-1", rounds=5).cells()
    expected = [
        f"digits · {method} · {attack} · seed {seed}"
        for seed in (0, 1)
        for attack in ("none", "ipm")
        for method in ("local", "fedcap")
    ]
    assert named(cells) == expected
    last = Experiment(method="fedcap", attack="ipm", seed=1, rounds=5)
    assert cells[-1].experiment.digest() == last.digest()
    assert cells[-1].name == last.digest()[:16]
    assert cells[-1].place == {
        "dataset": "digits",
        "method": "fedcap",
        "rule": "",
        "attack": "ipm",
        "seed": "1",
    }


def test_rules_go_to_the_methods_that_take_one() -> None:
    cells = Grid(methods="fedavg,fedcap,ditto", rules="median,bucketing(median)").cells()
    assert [cell.method for cell in cells] == [
        "fedavg+median",
        "fedavg+bucketing(median)",
        "fedcap",
        "ditto+median",
        "ditto+bucketing(median)",
    ]
    rule = {"name": "bucketing", "rule": "median"}
    assert cells[1].experiment.digest() == digest(method={"name": "fedavg", "rule": rule})


def test_any_setting_is_an_axis_and_options_go_to_those_that_have_them() -> None:
    axes = {"method.alpha": [1, 2], "training.lr": [0.1, 0.05]}
    cells = Grid(methods="fedavg,fedcap", axes=axes, attack="lie").cells()
    assert [(c.method, c.place["method.alpha"], c.place["training.lr"]) for c in cells] == [
        ("fedavg", "", "0.1"),
        ("fedavg", "", "0.05"),
        ("fedcap", "1", "0.1"),
        ("fedcap", "1", "0.05"),
        ("fedcap", "2", "0.1"),
        ("fedcap", "2", "0.05"),
    ]
    assert all(cell.experiment.attack.name == "lie" for cell in cells)
    chosen = {"method": {"name": "fedcap", "alpha": 2}, "training": {"lr": 0.05}, "attack": "lie"}
    assert cells[-1].experiment.digest() == digest(**chosen)
    assert str(cells[-1]).endswith("· seed 0 · method.alpha 2 · training.lr 0.05")


def test_options_of_a_method_in_the_settings_go_to_the_methods_that_have_them() -> None:
    cells = Grid(methods="fedavg,fedcap,fedcap(alpha=7)", method={"alpha": 3}).cells()
    alphas = [cell.experiment.settings()["method"].get("alpha") for cell in cells]
    assert alphas == [None, 3.0, 7.0]
    assert [cell.method for cell in cells] == ["fedavg", "fedcap", "fedcap(alpha=7)"]


def test_a_named_method_in_the_settings_gives_its_options_to_that_name() -> None:
    settings = {"method": {"name": "fedcap", "alpha": 3}}
    alphas = [
        c.experiment.settings()["method"].get("alpha")
        for c in Grid(methods="ditto,fedcap", **settings).cells()
    ]
    assert alphas == [None, 3.0]
    assert Grid(seeds=4, **settings).cells()[0].experiment.digest() == digest(seed=4, **settings)


def test_methods_and_attacks_are_objects_tables_or_have_custom_labels() -> None:
    cells = Grid(
        methods={"mine": FedCAP(alpha=9), "usual": "fedcap", "rule": FedAvg(rule="median")},
        attacks=[Louder(scale=3.0), {"name": "lie", "label": "a little"}, here(Louder)()],
        **TINY,
    ).cells()
    assert [cell.place["method"] for cell in cells[:3]] == ["mine", "usual", "rule"]
    assert [cell.place["attack"] for cell in cells[::3]] == [
        "python_tools:Louder(scale=3.0)",
        "a little",
        "Louder",
    ]
    assert cells[0].experiment.settings()["method"]["alpha"] == 9


def test_a_rule_goes_to_a_method_that_is_an_object() -> None:
    cells = Grid(methods=[here(FedAvg)(), FedAvg()], rules=["median", Plain()], **TINY).cells()
    assert [cell.method for cell in cells] == [
        "FedAvg+median",
        "FedAvg+python_tools:Plain",
        "fedavg+median",
        "fedavg+python_tools:Plain",
    ]
    rules = [cell.experiment.settings()["method"]["rule"]["name"] for cell in cells]
    assert rules == ["median", "python_tools:Plain"] * 2


def test_two_that_are_called_the_same_need_labels() -> None:
    with refused("same-label", "Louder"):
        Grid(attacks=[here(Louder)(), here(Louder)(scale=4.0)])


def test_all_is_everything_of_its_kind() -> None:
    cells = Grid(methods="fedavg", attacks="all", rules="all").cells()
    assert [cell.place["attack"] for cell in cells[:: len(fedcap.aggregators.names())]] == [
        "none",
        *fedcap.attacks.names(),
    ]


@pytest.mark.parametrize(
    ("given", "expected"), [("0-3,7", [0, 1, 2, 3, 7]), (5, [5]), ([2, 1], [2, 1]), (range(2), [0, 1])]
)
def test_seeds_as_ranges_and_lists(given: object, expected: list[int]) -> None:
    assert parse_seeds(given) == expected


@pytest.mark.parametrize("given", ["3-1", "a", "-1", "1.5", [-1], [True], 0.5, "0--2"])
def test_other_values_are_no_seeds(given: object) -> None:
    with refused("bad-value", "seeds"):
        parse_seeds(given)


@pytest.mark.parametrize(
    ("given", "code", "field"),
    [
        ({"attacks": "none,ipn"}, "unknown-name", "attack"),
        ({"methods": "fedavg", "rules": "medain"}, "unknown-name", "aggregator"),
        ({"methods": "fedavg", "rules": "bucketing(medain)"}, "unknown-name", "aggregator"),
        ({"datasets": "digitz"}, "unknown-name", "data set"),
        ({"methods": "fedcap", "rules": "median"}, "unknown-option", "rule"),
        ({"methods": "fedavg,fedcap", "method": {"alpa": 1}}, "unknown-option", "alpa"),
        ({"axes": {"attack.epsilon": [1]}, "attacks": "none,lie"}, "unknown-option", "epsilon"),
        ({"axes": {"trainng.lr": [0.1]}}, "unknown-setting", "trainng"),
        ({"axes": {"training.lr": []}}, "no-values", "training.lr"),
        ({"axes": {"training.lr": [-1]}}, "bad-value", "training.lr"),
        ({"axes": {"dataset.sampels": [9]}}, "unknown-option", "sampels"),
        ({"methods": "fedcap(alpha=x)"}, "bad-value", "alpha"),
        ({"seeds": "0-999999999999"}, "too-many-runs", None),
    ],
)
def test_a_mistake_is_an_error_before_anything_starts(
    given: dict[str, object], code: str, field: str | None
) -> None:
    with refused(code, field):
        Grid(**given).cells()  # type: ignore[arg-type]


def test_a_file_has_settings_and_axes_and_what_is_given_goes_over_both(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        "rounds = 7\n[dataset]\nsamples = 20\n"
        '[axes]\nmethods = ["fedavg", {name = "fedcap", alpha = 9, label = "nine"}]\nseeds = "0-4"\n'
        "[axes.training]\nlr = [0.1, 0.2]\n"
    )
    cells = Grid.read(file, {"seeds": "3"}, {"rounds": 2}).cells()
    assert [(c.method, c.place["seed"], c.place["training.lr"]) for c in cells] == [
        ("fedavg", "3", "0.1"),
        ("fedavg", "3", "0.2"),
        ("nine", "3", "0.1"),
        ("nine", "3", "0.2"),
    ]
    assert {(c.experiment.rounds, c.experiment.source.samples) for c in cells} == {(2, 20)}


@pytest.mark.parametrize(
    ("text", "field"),
    [('seeds = "0-4"', "seeds"), ("axes = 3", "axes")],
)
def test_a_file_whose_axes_are_not_under_axes_is_refused(tmp_path: Path, text: str, field: str) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(text)
    with refused("bad-value", field):
        Grid.read(file, {}, {})


def test_the_users_files_have_different_labels(tmp_path: Path) -> None:
    rows = "".join(f"{x},{x % 3},{x % 2}\n" for x in range(60))
    for name in ("north", "south"):
        (tmp_path / f"{name}.csv").write_text("x,z,label\n" + rows + ("7,1,1\n" if name == "south" else ""))
    paths = ",".join(str(tmp_path / f"{name}.csv") for name in ("north", "south"))
    cells = Grid(datasets=paths, methods="fedavg", dataset={"label": "label", "clients": 3}).cells()
    assert [cell.place["dataset"] for cell in cells] == ["north", "south"]
    assert cells[0].name != cells[1].name
    assert cells[0].key != cells[1].key


def test_a_grid_is_played_saved_and_compared(tmp_path: Path) -> None:
    notes, out = Notes(), tmp_path / "grid"
    grid = fedcap.Grid(methods="fedavg,fedcap", seeds="0-1", **TINY)
    compared = grid.run(out, Here(), watcher=notes)
    rows = compared.tidy()
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("fedavg", "0"),
        ("fedcap", "0"),
        ("fedavg", "1"),
        ("fedcap", "1"),
    ]
    for row in rows:
        alone = Experiment(method=row["method"], seed=int(str(row["seed"])), **TINY).run()
        assert row["tacc"] == alone.tacc
    assert (out / "tables.md").exists()
    again = Notes()
    assert grid.run(out, Here(), watcher=again).markdown() == compared.markdown()
    assert again.told == []
    more = Notes()
    fedcap.Grid(methods="fedavg,local", seeds="0-1", **TINY).run(out, Here(), watcher=more)
    assert [line for line in more.told if line[0] == "started"] == [
        ("started", "digits · local · none · seed 0"),
        ("started", "digits · local · none · seed 1"),
    ]


def test_an_option_that_a_data_set_presets_is_in_the_methods_name() -> None:
    """On digits, `fedcap` has an alpha of its own: what has the class's default is not called the same."""
    given = ["fedcap", "fedcap(alpha=10)", "ditto(lambda_=0.1)", "fedavg(mean)"]
    cells = Grid(methods=given).cells()
    assert [cell.method for cell in cells] == ["fedcap", "fedcap(alpha=10)", "ditto(lambda_=0.1)", "fedavg"]
    assert [cell.experiment.settings()["method"].get("alpha") for cell in cells[:2]] == [5.0, 10.0]


def test_a_setting_that_is_given_goes_over_the_axis_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text('[axes]\nmethods = ["fedavg", "ditto"]\nrounds = [7, 9]\ntraining.lr = [0.1, 0.2]\n')
    cells = Grid.read(file, {}, {"rounds": 2, "training": {"lr": 0.5}}).cells()
    assert [(c.method, c.experiment.rounds, c.experiment.training.lr) for c in cells] == [
        ("fedavg", 2, 0.5),
        ("ditto", 2, 0.5),
    ]
