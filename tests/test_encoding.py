"""Missing values and categories in tables: prepared by each client's own training samples."""

from __future__ import annotations

import csv
import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import call, refused
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

import fedcap
from fedcap.data.tables import Table

pytestmark = pytest.mark.usefixtures("data_folder")

DRAW = np.random.default_rng(0)
COUNT = 120
AGE = np.where(DRAW.random(COUNT) < 0.2, np.nan, DRAW.normal(size=COUNT).round(3))
DOSE = DRAW.normal(size=COUNT).round(6)
WARD = np.array(["A", "B", "C"], object)[DRAW.integers(0, 3, COUNT)]
WARD[::11] = None
Y = np.array(["ill", "well"])[(DOSE > 0).astype(int)]
SITES = np.array(["Bern", "Oslo", "Rome"]).repeat(40)
QUICK: dict[str, Any] = {"rounds": 2, "workers": 1, "training": {"epochs": 1, "lr": 0.1}}


def columns(**more: Any) -> dict[str, Any]:
    return {"age": AGE, "ward": WARD, "dose": DOSE, "y": Y, "client": SITES} | more


def frame(folder: Path, **more: Any) -> dict[str, Any]:
    return {"data": Table(columns(**more)), "prepare": "auto"}


def csv_file(folder: Path, **more: Any) -> dict[str, Any]:
    with open(folder / "patients.csv", "w") as file:
        writer = csv.writer(file)
        writer.writerow(columns(**more))
        for row in zip(*columns(**more).values(), strict=True):
            writer.writerow(["" if cell is None or cell != cell else cell for cell in row])
    return {"name": str(folder / "patients.csv"), "prepare": "auto"}


SOURCES = [frame, csv_file]


def oracle(train: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return inputs as scikit-learn prepares them, given raw columns age, ward, dose."""
    numbers = SimpleImputer(strategy="median").fit(train[:, [0, 2]].astype(float))
    age, dose = numbers.transform(x[:, [0, 2]].astype(float)).T
    levels = OneHotEncoder(categories=[["A", "B", "C"]], handle_unknown="ignore", sparse_output=False)
    ward = levels.fit([["A"]]).transform(x[:, [1]])
    other = 1 - ward.sum(axis=1, keepdims=True)
    return np.column_stack([age, ward, other, dose])


@pytest.mark.parametrize("source", SOURCES)
def test_each_clients_inputs_are_prepared_by_its_own_training_samples(tmp_path: Path, source: Any) -> None:
    federated = fedcap.Experiment(dataset=source(tmp_path), **QUICK).load_data()
    assert federated.shape == (6,)
    raw = np.column_stack([AGE.astype(object), WARD, DOSE])
    row_of = {np.float32(dose): row for row, dose in enumerate(DOSE)}
    for train, test in zip(federated.train, federated.test, strict=True):
        rows = [raw[[row_of[np.float32(value)] for value in part.x[:, 5].tolist()]] for part in (train, test)]
        for part, own in zip((train, test), rows, strict=True):
            assert part.x.numpy() == pytest.approx(oracle(rows[0], own).astype(np.float32))


@pytest.mark.parametrize("standardise", [False, True])
@pytest.mark.parametrize("source", SOURCES)
def test_predict_prepares_a_table_as_the_run_did(tmp_path: Path, source: Any, standardise: bool) -> None:
    dataset = source(tmp_path) | {"standardise": standardise}
    experiment = fedcap.Experiment(dataset=dataset, **QUICK)
    experiment.run(out=tmp_path / "run")
    run, federated = fedcap.read(tmp_path / "run"), experiment.load_data()
    at = federated.names.index("Oslo")
    test = federated.test[at].x
    found = run.preparation("Oslo")(new())
    assert {tuple(row) for row in test.tolist()} <= {tuple(row) for row in found.tolist()}
    logits = run.model("Oslo")(found)
    assert torch.allclose(run.predict("Oslo", new()), logits.softmax(dim=1), atol=1e-6)


def new(**more: Any) -> Table:
    """Return the features in another order."""
    return Table({"dose": DOSE, "ward": WARD, "age": AGE} | more)


def test_an_unknown_category_and_a_missing_one_are_other(tmp_path: Path) -> None:
    result = fedcap.Experiment(dataset=frame(tmp_path), **QUICK).run()
    assert result.models is not None
    prepare = result.models.preparation("Rome")
    strange = Table({"age": np.array([1.0, 1.0]), "dose": np.zeros(2), "ward": np.array(["Z", None], object)})
    assert prepare(strange)[:, 1:5].tolist() == [[0, 0, 0, 1]] * 2


def test_the_exported_program_prepares_and_predict_agrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fedcap.Experiment(dataset=csv_file(tmp_path) | {"standardise": True}, **QUICK).run(out=tmp_path / "run")
    run = fedcap.read(tmp_path / "run")
    arguments = ["export", tmp_path / "run", "--client", "Oslo", "-o", tmp_path / "m.pt2", "--json"]
    code, out, _ = call(capsys, *arguments)
    assert code == 0
    about = json.loads(out)
    assert (about["shape"], about["features"]) == ([3], ["age", "ward", "dose"])
    assert about["levels"] == {"ward": ["A", "B", "C"]}
    codes = [np.nan if ward is None else "ABC".index(ward) for ward in WARD]
    raw = torch.tensor(np.column_stack([AGE, codes, DOSE]), dtype=torch.float32)
    program = torch.export.load(tmp_path / "m.pt2").module()
    expected = run.predict("Oslo", new())
    assert torch.allclose(program(raw), expected, atol=1e-6)
    arguments = ["predict", tmp_path / "run", tmp_path / "patients.csv", "--client", "Oslo", "--json"]
    code, out, _ = call(capsys, *arguments)
    assert code == 0
    found = [row["p(ill)"] for row in json.loads(out)["answers"]]
    assert found == pytest.approx(expected[:, 0].tolist(), abs=1e-6)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (np.array(["2024-01-31"] * COUNT), "column 'more' holds dates ('2024-01-31')"),
        (np.array(["31.1.2024 10:30"] * COUNT), "column 'more' holds dates"),
        (np.array([f"note {at}" for at in range(COUNT)]), "holds free text, with 120 different values"),
        (np.array(["1.5"] * 100 + ["1,5x"] * 20), "holds numbers and text ('1,5x')"),
    ],
)
def test_dates_and_free_text_are_refused_by_name(
    tmp_path: Path, source: Any, content: np.ndarray, said: str
) -> None:
    with refused("text-in-table", '["more"]') as error:
        fedcap.Experiment(dataset=source(tmp_path, more=content), **QUICK).load_data()
    assert said in str(error.value)
    ignored = source(tmp_path, more=content) | {"ignore": ["more"]}
    assert fedcap.Experiment(dataset=ignored, **QUICK).load_data().shape == (6,)


def test_dates_in_a_data_frame_are_refused_by_name(tmp_path: Path) -> None:
    days = np.array([datetime.date(2024, 1, 31)] * COUNT, object)
    for dates in (days, days.astype("datetime64[D]")):
        with refused("text-in-table", '["more"]'):
            fedcap.Experiment(dataset=frame(tmp_path, more=dates), **QUICK).load_data()


@pytest.mark.parametrize("source", SOURCES)
def test_without_the_option_missing_values_and_text_are_refused(tmp_path: Path, source: Any) -> None:
    dataset = source(tmp_path)
    del dataset["prepare"]
    with refused("text-in-table", '["ward"]'):
        fedcap.Experiment(dataset=dataset, **QUICK).load_data()


def test_the_option_is_in_the_digest_only_if_given(tmp_path: Path) -> None:
    numbers = {"data": Table({"dose": DOSE, "y": Y, "client": SITES})}
    settings = fedcap.Experiment(dataset=numbers, **QUICK).settings()
    assert "prepare" not in settings["dataset"]


def test_arrays_without_columns_are_refused(tmp_path: Path) -> None:
    with refused("bad-value", "prepare"):
        fedcap.Experiment(dataset={"x": DOSE[:, None], "y": Y, "prepare": "auto"}).load_data()
    result = fedcap.Experiment(dataset=frame(tmp_path), **QUICK).run()
    assert result.models is not None
    with refused("data-shape", "x"):
        result.models.predict("Oslo", np.zeros((2, 3), np.float32))
    with refused("missing-feature", "ward"):
        result.models.predict("Oslo", Table({"age": AGE, "dose": DOSE}))
