"""Settings: read without building anything, merged, and distinguished by a digest."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from helpers import refused
from hypothesis import given
from hypothesis import strategies as st

from fedcap.runs import Named, Settings, digest, overlay, read_toml, to_toml
from fedcap.simulation.settings import preset

SETTINGS: dict[str, Any] = {
    "model": "mlp",
    "malicious": 0.4,
    "participation": 1.0,
    "rounds": 3,
    "seed": 0,
    "eval_every": 1,
    "checkpoint_every": 1,
    "device": "cuda:7",
    "workers": 2,
    "dataset": {"name": "digits", "clients": 5, "partition": {"name": "dirichlet", "beta": 0.5}},
    "method": {"name": "fedcap", "alpha": 5.0},
    "attack": {"name": "ipm", "clients": [3, 4]},
    "training": {"lr": 0.05, "epochs": 1},
}


def test_settings_can_be_read_where_their_device_is_not_and_keep_what_they_do_not_know() -> None:
    settings = Settings.model_validate({**SETTINGS, "detector": {"name": "norm"}})
    assert (settings.device, settings.attack.options) == ("cuda:7", {"clients": [3, 4]})
    assert settings.model_dump(exclude={"track"}) == {**SETTINGS, "detector": {"name": "norm"}}


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("digits", "digits"),
        ({"name": "npz", "path": "/some/where/letters.npz"}, "letters"),
        ({"name": "folder", "path": "faces.v2"}, "faces.v2"),
    ],
)
def test_a_data_set_of_ones_own_is_called_by_its_file(dataset: object, name: str) -> None:
    assert Settings.model_validate({**SETTINGS, "dataset": dataset}).dataset_name == name


def test_a_name_is_short_for_a_table() -> None:
    assert Named.model_validate("median") == Named(name="median")
    assert Named.model_validate({"name": "gas", "chunks": 2}).options == {"chunks": 2}


@pytest.mark.parametrize(
    ("base", "top", "merged"),
    [
        ({"seed": 1, "rounds": 2}, {"seed": 3}, {"seed": 3, "rounds": 2}),
        ({"training": {"lr": 1, "epochs": 2}}, {"training": {"lr": 3}}, {"training": {"lr": 3, "epochs": 2}}),
        # Options laid over a name belong to it.
        ({"method": "fedcap"}, {"method": {"alpha": 5}}, {"method": {"name": "fedcap", "alpha": 5}}),
        (
            {"method": {"name": "fedcap", "phi": 0.2}},
            {"method": {"alpha": 5}},
            {"method": {"name": "fedcap", "phi": 0.2, "alpha": 5}},
        ),
        # The same name, however it is written, keeps its options.
        (
            {"attack": {"name": "min-max", "scale": 2}},
            {"attack": "Min_Max"},
            {"attack": {"name": "Min_Max", "scale": 2}},
        ),
        # Another name does not.
        (
            {"attack": {"name": "ipm", "epsilon": 2}},
            {"attack": {"name": "lie"}},
            {"attack": {"name": "lie"}},
        ),
        ({"attack": {"name": "ipm", "epsilon": 2}}, {"attack": "lie"}, {"attack": {"name": "lie"}}),
        ({"attack": "ipm"}, {"attack": "lie"}, {"attack": "lie"}),
        (
            {"method": {"name": "fedavg", "rule": "gas"}},
            {"method": {"rule": {"chunks": 2}}},
            {"method": {"name": "fedavg", "rule": {"name": "gas", "chunks": 2}}},
        ),
        (
            {"method": {"name": "fedcap"}},
            {"method": Named(name="ditto", mu=1)},
            {"method": {"name": "ditto", "mu": 1}},
        ),
    ],
)
def test_settings_are_laid_over_others(
    base: dict[str, Any], top: dict[str, Any], merged: dict[str, Any]
) -> None:
    before = json.dumps(base)
    assert overlay(base, top) == merged
    assert json.dumps(base) == before


def test_the_digest_is_that_of_the_results() -> None:
    same = digest(SETTINGS)
    assert digest(dict(reversed(SETTINGS.items()))) == same
    assert digest({**SETTINGS, "dataset": dict(reversed(SETTINGS["dataset"].items()))}) == same
    assert digest({**SETTINGS, "workers": 9, "checkpoint_every": 5}) == same
    assert digest({**SETTINGS, "attack": {"name": "ipm", "clients": (3, 4)}}) == same
    assert digest(tomllib.loads(to_toml(SETTINGS))) == same
    assert digest(Settings.model_validate(SETTINGS).model_dump()) == same
    assert digest({**SETTINGS, "dataset": {**SETTINGS["dataset"], "path": "/elsewhere"}}) == same
    quiet = {**SETTINGS, "attack": {"name": "none"}}
    assert digest(quiet) == digest({**quiet, "malicious": 0.1})
    others = [
        digest({**SETTINGS, "malicious": 0.1}),
        digest({**SETTINGS, "seed": 1}),
        digest({**SETTINGS, "method": {"name": "fedcap", "alpha": 5.5}}),
        digest(SETTINGS, "data"),
        digest(SETTINGS, "data", "partition"),
        digest(SETTINGS, "datapartition"),
    ]
    assert len({same, *others}) == 7


def test_the_digest_does_not_change_between_versions() -> None:
    # printf '[{"seed":0},"x"]' | sha256sum
    expected = "9e7ac1d8977e6ae70bd5c3605a422a0c7e07a37b20acb361f5e9f86b8e14293b"
    assert digest({"seed": 0, "workers": 1}, "x") == expected


KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
TABLES = st.recursive(
    st.dictionaries(KEYS, VALUES, max_size=3), lambda inner: st.dictionaries(KEYS, VALUES | inner, max_size=3)
)


@given(TABLES)
def test_any_settings_come_back_from_toml(settings: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(settings)) == settings


def test_a_file_that_is_missing_or_no_toml_is_one_line(tmp_path: Path) -> None:
    with refused("missing-file"):
        read_toml(tmp_path / "nowhere.toml")
    for content in (b"rounds = = 3", b"name = '\xff'"):
        (tmp_path / "bad.toml").write_bytes(content)
        with refused("bad-file"):
            read_toml(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("dataset", "alpha", "phi", "lambda_", "t_norm"),
    [
        ("digits", 5, 0.1, 1, 6),
        ("cifar10", 10, 0.3, 1, 10),
        ("emnist", 10, 0.1, 0.5, 10),
        ("handwritten62", 10, 0.1, 0.5, 10),
        ("wisdm", 2, 0.1, 0.1, 10),
    ],
)
def test_fedcap_has_options_for_every_data_set(
    dataset: str, alpha: float, phi: float, lambda_: float, t_norm: float
) -> None:
    expected = {"alpha": alpha, "phi": phi, "lambda_": lambda_, "t_norm": t_norm}
    assert preset(dataset, "fedcap") == expected
