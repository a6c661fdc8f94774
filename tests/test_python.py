"""Attacks, methods, rules, detectors and policies given from Python, as objects and as classes."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import Killed, Killer, refused, without_times
from python_tools import Lenient, Longest, Louder, Plain, here

import fedcap
import fedcap.experiments
from fedcap.aggregators.bucketing import Bucketing
from fedcap.aggregators.trimmed_mean import TrimmedMean
from fedcap.attacks import Attack
from fedcap.attacks.ipm import IPM
from fedcap.cli import main
from fedcap.detection import Detector
from fedcap.detection.norm import Norm
from fedcap.methods.fedavg import FedAvg
from fedcap.methods.fedcap import FedCAP
from fedcap.simulation import load_experiment

QUICK: dict[str, Any] = {"rounds": 2, "training": {"epochs": 1}, "workers": 1}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"method": FedCAP(alpha=3.0)}, {"method": {"name": "fedcap", "alpha": 3.0, "t_norm": 10.0}}),
        ({"attack": IPM(), "method": "fedavg"}, {"attack": "ipm", "method": "fedavg"}),
        (
            {"method": {"name": "fedavg", "rule": TrimmedMean()}},
            {"method": {"name": "fedavg", "rule": "trimmed-mean"}},
        ),
        (
            {"method": FedAvg(rule=Bucketing(rule=TrimmedMean(), size=3))},
            {"method": {"name": "fedavg", "rule": {"name": "bucketing", "rule": "trimmed-mean", "size": 3}}},
        ),
        (
            {"method": FedAvg(detectors=[Norm(limit=3.0)])},
            {"method": {"name": "fedavg", "detectors": [{"name": "norm", "limit": 3.0}]}},
        ),
        (
            {"attack": Louder(scale=3.0)},
            {"attack": {"name": "python_tools:Louder", "scale": 3.0}},
        ),
        (
            {"attack": {"name": Louder, "scale": 3.0, "clients": ["1"]}},
            {"attack": {"name": "python_tools:Louder", "scale": 3.0, "clients": ["1"]}},
        ),
        ({"method": FedCAP}, {"method": "fedcap"}),
        (
            {"method": {"name": "fedavg", "rule": Plain, "detectors": Longest, "policy": Lenient}},
            {
                "method": {
                    "name": "fedavg",
                    "rule": "python_tools:Plain",
                    "detectors": "python_tools:Longest",
                    "policy": "python_tools:Lenient",
                }
            },
        ),
    ],
)
def test_an_object_that_can_be_found_again_is_its_name_and_options(given: Any, named: Any) -> None:
    if given.get("method") == FedCAP(alpha=3.0):
        named = {"method": named["method"] | {"phi": 0.3, "lambda_": 0.1}}
    first, second = fedcap.Experiment(**given), fedcap.Experiment(**named)
    assert first.settings() == second.settings()
    assert first.digest() == second.digest()


def test_an_object_has_its_own_options_and_a_class_those_that_suit_the_data() -> None:
    assert fedcap.Experiment(method=FedCAP(alpha=2.0)).trainer == FedCAP(alpha=2.0)
    assert fedcap.Experiment(method=FedCAP).trainer == fedcap.Experiment(method="fedcap").trainer
    assert fedcap.Experiment(method=FedCAP).trainer.t_norm == 6.0


def test_the_given_objects_are_the_ones_that_run() -> None:
    method = {"name": "fedavg", "rule": here(Plain)(), "detectors": (here(Longest)(limit=1e-6),)}
    lenient = fedcap.Experiment(method={**method, "policy": here(Lenient)()}, **QUICK).run()
    assert not lenient.removed
    assert len(lenient.history[0].refused) == 20
    strict = fedcap.Experiment(method=method, **QUICK).run()
    assert len(strict.removed) == 20
    plain = {"name": "fedavg", "rule": here(Plain)()}
    by_object = fedcap.Experiment(method=plain, attack=here(Louder)(scale=3.0), **QUICK).run()
    by_name = fedcap.Experiment(
        method="fedavg", attack={"name": "python_tools:Louder", "scale": 3.0}, **QUICK
    ).run()
    assert without_times(by_object) == without_times(by_name)
    first = by_object.history[0].attack
    assert first is not None
    assert first.length == pytest.approx(
        3
        * fedcap.Experiment(method="fedavg", attack=Louder(scale=1.0), **QUICK)
        .run()
        .history[0]
        .attack.length,
        rel=1e-4,
    )


def config(out: Path) -> dict[str, Any]:
    return tomllib.loads((out / "config.toml").read_text())


def test_an_object_that_can_be_imported_is_resumed_from_its_directory(tmp_path: Path) -> None:
    settings = {"method": FedAvg(rule=Plain()), "attack": Louder(scale=3.0), **QUICK}
    whole = fedcap.Experiment(**settings).run()
    with pytest.raises(Killed):
        fedcap.Experiment(**settings).run(out=tmp_path / "run", observers=[Killer(after=1)])
    assert config(tmp_path / "run")["attack"] == {
        "name": "python_tools:Louder",
        "scale": 3.0,
        "table": {},
    }
    assert config(tmp_path / "run")["method"]["rule"] == {"name": "python_tools:Plain"}
    assert without_times(load_experiment(tmp_path / "run").run(out=tmp_path / "run")) == without_times(whole)


def test_an_object_that_cannot_be_imported_is_resumed_from_python_and_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"

    def experiment(scale: float) -> fedcap.Experiment:
        return fedcap.Experiment(
            method={"name": "fedavg", "rule": here(Plain)()}, attack=here(Louder)(scale=scale), **QUICK
        )

    whole = experiment(3.0).run()
    with pytest.raises(Killed):
        experiment(3.0).run(out=out, observers=[Killer(after=1)])
    written = config(out)
    assert written["attack"]["name"] == "<Louder from Python>"
    assert written["attack"]["scale"] == 3.0
    assert len(written["attack"]["hash"]) == 64
    assert written["method"]["rule"]["name"] == "<Plain from Python>"
    with refused("other-run"):
        experiment(4.0).run(out=out)
    with pytest.raises(SystemExit) as stop:
        main(["run", "--resume", str(out)])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert "the attack of this run, <Louder from Python>, was given from Python" in error
    assert len(error.strip().splitlines()) == 1
    assert without_times(experiment(3.0).run(out=out)) == without_times(whole)


def test_an_object_with_an_option_that_cannot_be_written_down_is_kept_as_it_is() -> None:
    factor = torch.tensor([3.0])
    attack = Louder(scale=factor)  # type: ignore[arg-type]
    experiment = fedcap.Experiment(attack=attack)
    assert experiment.adversary is attack
    written = experiment.settings()["attack"]
    assert written["name"] == "<Louder from Python>"
    assert "scale" not in written
    again = fedcap.Experiment(attack=Louder(scale=torch.tensor([3.0])))  # type: ignore[arg-type]
    other = fedcap.Experiment(attack=Louder(scale=factor + 1))  # type: ignore[arg-type]
    assert again.digest() == experiment.digest() != other.digest()


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"method": FedCAP(alpha=-1.0)}, "bad-value"),
        ({"attack": FedCAP()}, "bad-value"),
        ({"method": {"name": "fedavg", "rule": IPM()}}, "bad-value"),
        ({"method": {"name": "fedavg", "rule": Norm()}}, "bad-value"),
        ({"method": {"name": "fedavg", "rule": Detector}}, "bad-value"),
        ({"method": {"name": "fedavg", "detectors": (Longest(), Longest(limit=1.0))}}, "name-taken"),
        ({"attack": {"name": here(Louder)(), "scale": 3.0}}, "unknown-option"),
        ({"attack": {"name": here(Louder), "sale": 3.0}}, "unknown-option"),
        ({"method": {"name": here(FedAvg)(), "alpha": 1}}, "bad-option"),
        ({"attack": Attack}, "wrong-class"),
        ({"attack": object()}, "bad-value"),
    ],
)
def test_an_object_that_does_not_fit_is_one_clear_line(settings: Any, code: str) -> None:
    with refused(code) as error:
        fedcap.Experiment(**settings)
    assert "\n" not in str(error.value)


# --- The arguments of `run`


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"out": 3}, "wrong-type"),
        ({"out": ""}, "bad-value"),
        ({"observers": None}, "wrong-type"),
        (
            {"observers": [object()]},
            "wrong-type",
        ),
        ({"observers": [Killer]}, "wrong-type"),
        ({"observers": Killer(1)}, "wrong-type"),
        ({"pool": 3}, "wrong-type"),
    ],
)
def test_a_wrong_argument_of_run_is_one_clear_line(given: Any, code: str) -> None:
    with refused(code):
        fedcap.Experiment(**QUICK).run(**given)


def test_objects_that_workers_cannot_import_cause_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    settings = QUICK | {"workers": 2, "rounds": 1}
    with caplog.at_level(logging.WARNING, "fedcap"):
        fedcap.Experiment(method=FedAvg(rule=Plain()), attack=here(Louder)(), **settings).run()
    assert not caplog.records


@pytest.mark.parametrize(
    ("setting", "owner"),
    [("detectors", "method"), ("alpha", "method"), ("epsilon", "attack"), ("lr", "training")],
)
def test_an_option_given_as_a_setting_is_an_error_that_names_its_owner(setting: str, owner: str) -> None:
    with refused("unknown-setting", setting) as error:
        fedcap.Experiment(**{setting: 1})
    assert f"{owner}.{setting}" in str(error.value)


def test_each_public_name_can_be_imported() -> None:
    assert dir(fedcap) == sorted(fedcap.__all__)
    for package in (fedcap, fedcap.experiments):
        for name in package.__all__:
            assert getattr(package, name) is not None
    assert "norm" in fedcap.detectors.names()
