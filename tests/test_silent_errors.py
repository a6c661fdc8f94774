"""Mistakes in one's own data that once went unnoticed: each is an error or a warning that names it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import refused

import fedcap
from fedcap.data.tables import Table
from fedcap.errors import warn_once

pytestmark = pytest.mark.usefixtures("data_folder")

DRAW = np.random.default_rng(0)
NAMES = ["age", "dose", "weight"]
X = DRAW.normal(size=(120, 3)).astype(np.float32)
Y = np.array(["ill", "well"])[(X[:, 0] > 0).astype(int)]
SITES = np.array(["Bern", "Oslo", "Rome"]).repeat(40)
QUICK: dict[str, Any] = {"rounds": 2, "workers": 1, "training": {"epochs": 1, "lr": 0.1}}


@pytest.fixture(autouse=True)
def _new_warnings() -> None:
    warn_once.cache_clear()


def table(*order: int, **more: Any) -> Table:
    """Return the features in this order, and more columns."""
    return Table({NAMES[at]: X[:, at] for at in order} | more)


def csv(path: Path, *order: int, **more: Any) -> str:
    columns = {NAMES[at]: X[:, at].tolist() for at in order} | {k: v.tolist() for k, v in more.items()}
    rows = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join([",".join(columns), *rows]) + "\n")
    return str(path)


def frame(tmp_path: Path) -> Any:
    return {"data": table(0, 1, 2, y=Y, client=SITES)}


def csv_file(tmp_path: Path) -> Any:
    return csv(tmp_path / "patients.csv", 0, 1, 2, y=Y, client=SITES)


def npz_file(tmp_path: Path) -> Any:
    np.savez(tmp_path / "patients.npz", x=X, y=Y, client=SITES, features=np.array(NAMES))
    return str(tmp_path / "patients.npz")


def arrays_of_a_frame(tmp_path: Path) -> Any:
    return {"x": table(0, 1, 2), "y": Y, "client": SITES}


@pytest.mark.parametrize("source", [frame, csv_file, npz_file, arrays_of_a_frame])
def test_columns_are_matched_by_name_in_any_order(tmp_path: Path, source: Any) -> None:
    fedcap.Experiment(dataset=source(tmp_path), **QUICK).run(out=tmp_path / "run")
    run = fedcap.read(tmp_path / "run")
    assert list(run.provenance.features) == NAMES
    expected = run.predict("Oslo", table(0, 1, 2))
    assert torch.equal(run.predict("Oslo", table(2, 0, 1)), expected)
    assert torch.equal(run.predict("Oslo", X), expected)
    with refused("missing-feature", "dose") as error:
        run.predict("Oslo", table(2, 0))
    assert "inputs has no column 'dose': the model's features are age, dose, weight" in str(error.value)
    with refused("extra-feature", "noise") as error:
        run.predict("Oslo", table(0, 1, 2, noise=X[:, 0]))
    assert "unexpected column 'noise'" in str(error.value)


def test_columns_without_names_are_counted_and_a_warning_names_the_order(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = fedcap.Experiment(dataset=frame(tmp_path), **QUICK).run()
    assert result.models is not None
    result.models.predict("Oslo", X)
    assert "the columns of x have no names: they must be, in order, age, dose, weight" in caplog.text
    with refused("data-shape", "x"):
        result.models.predict("Oslo", X[:, :2])


def test_a_run_without_names_compares_the_number_of_columns(tmp_path: Path) -> None:
    result = fedcap.Experiment(dataset=(X, Y), **QUICK).run()
    assert result.models is not None
    assert result.models.inputs.features == ()
    assert torch.equal(
        result.models.predict("0", table(2, 1, 0)), result.models.predict("0", X[:, ::-1].copy())
    )


def test_names_come_from_the_cache_too(tmp_path: Path) -> None:
    for make in (csv_file, npz_file):
        dataset = make(tmp_path)
        first, again = (fedcap.Experiment(dataset=dataset).source.load() for _ in range(2))
        assert first.features == again.features == tuple(NAMES)


@pytest.mark.parametrize(
    ("names", "code"),
    [(["a", "b"], "data-shape"), (["a", "b", "c", "d"], "data-shape"), (["a", "b", "a"], "name-taken")],
)
def test_names_that_do_not_fit_the_columns_are_refused(tmp_path: Path, names: list[str], code: str) -> None:
    np.savez(tmp_path / "mine.npz", x=X, y=Y, features=np.array(names))
    with refused(code):
        fedcap.Experiment(dataset=str(tmp_path / "mine.npz")).load_data()


def warnings(caplog: pytest.LogCaptureFixture, dataset: Any, **more: Any) -> str:
    with caplog.at_level(logging.WARNING, "fedcap"):
        fedcap.Experiment(dataset=dataset, **QUICK | more).load_data()
    return caplog.text


def test_a_test_set_of_one_class_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    tests = (Y == "ill") & (np.arange(120) % 3 == 0)
    said = warnings(caplog, {"x": X, "y": Y, "client": SITES, "test": tests})
    assert "all test samples are of the class 'ill'" in said


def test_a_client_that_is_tested_on_one_class_is_named(caplog: pytest.LogCaptureFixture) -> None:
    tests = np.arange(120) % 3 == 0
    tests &= (SITES != "Rome") | (Y == "well")
    said = warnings(caplog, {"x": X, "y": Y, "client": SITES, "test": tests})
    assert "of one class only (Rome)" in said


def test_labels_of_one_class_are_refused() -> None:
    with refused("one-class", "y") as error:
        fedcap.Experiment(dataset=(X, np.zeros(120, int))).load_data()
    assert "all 120 labels are '0'" in str(error.value)


def test_labels_that_are_identifiers_are_refused() -> None:
    with refused("too-many-classes", "y") as error:
        fedcap.Experiment(dataset=(X, np.arange(120))).load_data()
    assert "120 samples have 120 different labels" in str(error.value)


def test_a_target_to_regress_is_refused() -> None:
    with refused("bad-value", "y") as error:
        fedcap.Experiment(dataset=(X, np.round(DRAW.normal(50, 20, 120)))).load_data()
    assert "fedcap predicts classes, not amounts" in str(error.value)


@pytest.mark.parametrize("labels", [(X[:, 0] > 0).astype(float), [float(value > 0) for value in X[:, 0]]])
def test_a_few_whole_floats_become_classes_with_a_warning(
    caplog: pytest.LogCaptureFixture, labels: Any
) -> None:
    assert "y holds floating-point numbers; each value is a class: 0, 1" in warnings(caplog, (X, labels))


def test_inputs_that_are_not_scaled_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    data = {"data": Table({"age": X[:, 0], "income": X[:, 1] * 1e4, "y": Y})}
    said = warnings(caplog, data)
    assert "feature 'income' has values up to" in said
    assert "dataset.standardise=true" in said
    caplog.clear()
    warn_once.cache_clear()
    assert warnings(caplog, data | {"standardise": True}) == ""


def test_values_too_large_for_32_bits_are_refused_with_the_value() -> None:
    with refused("data-shape", "x") as error:
        fedcap.Experiment(dataset=(np.where(X > 2.5, 1e99, X.astype(float)), Y)).load_data()
    assert "a value of 1e+99, too large for 32-bit numbers" in str(error.value)


def test_fractions_as_labels_are_refused_with_a_value() -> None:
    with refused("bad-value", "y") as error:
        fedcap.Experiment(dataset=(X, np.arange(120) % 30 + 0.25)).load_data()
    assert "y must be whole numbers or text, and it has 0.25: fedcap predicts classes" in str(error.value)


def test_an_option_for_own_data_on_another_data_set_is_named() -> None:
    with refused("unknown-option", "standardise") as error:
        fedcap.Experiment(dataset={"name": "digits", "standardise": True})
    assert "no option 'standardise', which is for your own data" in str(error.value)
