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


def test_arrays_without_columns_are_refused(tmp_path: Path) -> None:
    with refused("bad-value", "prepare"):
        fedcap.Experiment(dataset={"x": DOSE[:, None], "y": Y, "prepare": "auto"}).load_data()
    result = fedcap.Experiment(dataset=frame(tmp_path), **QUICK).run()
    assert result.models is not None
    with refused("data-shape", "x"):
        result.models.predict("Oslo", np.zeros((2, 3), np.float32))
    with refused("missing-feature", "ward"):
        result.models.predict("Oslo", Table({"age": AGE, "dose": DOSE}))


def with_rare_level() -> tuple[np.ndarray, np.ndarray]:
    """Return wards of which D is in test samples only, and the test flags."""
    test = np.arange(COUNT) % 4 == 0
    ward = np.array(["A", "B", "C"], object)[np.arange(COUNT) % 3]
    ward[np.arange(COUNT) % 8 == 0] = "D"
    return ward, test


@pytest.mark.parametrize("source", SOURCES)
def test_a_level_of_test_samples_alone_is_other(tmp_path: Path, source: Any) -> None:
    ward, test = with_rare_level()
    experiment = fedcap.Experiment(dataset=source(tmp_path, ward=ward, test=test), **QUICK)
    federated = experiment.load_data()
    assert federated.levels == ((), ("A", "B", "C"), ())
    assert federated.shape == (6,)
    row_of = {np.float32(dose): row for row, dose in enumerate(DOSE)}
    for part in (part for client in federated.clients for part in client):
        wards = [ward[row_of[np.float32(value)]] for value in part.x[:, 5].tolist()]
        assert part.x[:, 1:5].tolist() == [[float(known == own) for known in "ABCD"] for own in wards]


@pytest.mark.parametrize("source", SOURCES)
def test_public_levels_need_no_data(tmp_path: Path, source: Any) -> None:
    """They may list levels that no client has, and a column of numbers; what they leave out is other."""
    age = np.where(np.isnan(AGE), np.nan, np.arange(COUNT) % 2)
    levels = {"ward": ["C", "A", "ward:E"], "age": [0, 1]}
    dataset = source(tmp_path, age=age) | {"levels": levels}
    experiment = fedcap.Experiment(dataset=dataset, **QUICK)
    federated = experiment.load_data()
    assert federated.levels == (("0", "1"), ("C", "A", "ward:E"), ())
    row_of = {np.float32(dose): row for row, dose in enumerate(DOSE)}
    for part in (part for client in federated.clients for part in client):
        rows = [row_of[np.float32(value)] for value in part.x[:, 7].tolist()]
        assert part.x[:, :3].tolist() == [
            [age[row] == 0, age[row] == 1, bool(np.isnan(age[row]))] for row in rows
        ]
        wanted = [[ward == "C", ward == "A", False, ward in ("B", None)] for ward in WARD[rows]]
        assert part.x[:, 3:7].tolist() == wanted
    result = experiment.run(out=tmp_path / "run")
    assert result.models is not None
    probabilities = fedcap.read(tmp_path / "run").predict("Oslo", new(age=age))
    assert torch.allclose(probabilities, result.models.predict("Oslo", new(age=age)))
    without = fedcap.Experiment(dataset={**dataset, "levels": None}, **QUICK)
    assert "levels" not in without.settings()["dataset"]
    assert without.digest() != experiment.digest()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ({"levels": {"ward": ["A"]}, "prepare": None}, "bad-value", "with dataset.prepare=auto: set it too"),
        ({"levels": {"warde": ["A"]}}, "unknown-name", "names 'warde', which is not a column of features"),
        ({"levels": {}}, "text-in-table", "holds categories ('A') that dataset.levels does not list"),
        ({"levels": {"ward": ["A", "A"]}}, "bad-value", "a list of different texts"),
        ({"levels": {"ward": []}}, "bad-value", "a list of different texts"),
    ],
)
def test_wrong_levels_are_one_line(tmp_path: Path, options: dict[str, Any], code: str, said: str) -> None:
    with refused(code) as error:
        fedcap.Experiment(dataset=frame(tmp_path) | options, **QUICK).load_data()
    assert said in str(error.value)


def test_a_site_prepares_its_table_with_the_plans_levels_and_its_own_medians(tmp_path: Path) -> None:
    """The operator's table lists the levels; a site has another one, and its columns in another order."""
    pytest.importorskip("flwr")
    from fedcap.cli.federate.operator import plan_like
    from fedcap.cli.site_models import SiteModels
    from fedcap.federation.site import SiteState, StateFolder
    from fedcap.federation.site_data import load_site_data

    sample = csv_file(tmp_path)
    plan = plan_like("trial", {"dataset": sample, "method": "fedavg", "training": {"lr": 0.1}})
    assert (plan.levels, plan.shape, plan.means) == ({"ward": ("A", "B", "C")}, (6,), None)
    own = {"dose": DOSE + 1, "ward": np.where(WARD == "A", "Z", WARD), "age": AGE + 5, "label": Y}
    with open(tmp_path / "site.csv", "w") as file:
        writer = csv.writer(file)
        writer.writerows([[*own], *zip(*own.values(), strict=True)])
    text = (tmp_path / "site.csv").read_text().replace("nan", "")
    (tmp_path / "site.csv").write_text(text)
    data = load_site_data({"name": str(tmp_path / "site.csv")}, None, 0, plan)
    row_of = {np.float32(dose): row for row, dose in enumerate(own["dose"])}
    raw = np.column_stack([own["age"].astype(object), own["ward"], own["dose"]])
    rows = [
        raw[[row_of[np.float32(value)] for value in part.x[:, 5].tolist()]]
        for part in (data.local.train, data.local.test)
    ]
    for part, cells in zip((data.local.train, data.local.test), rows, strict=True):
        assert part.x.numpy() == pytest.approx(oracle(rows[0], cells).astype(np.float32))
    assert data.medians is not None
    assert data.medians[0] == pytest.approx(np.nanmedian(rows[0][:, 0].astype(float)), rel=1e-6)
    states = StateFolder(tmp_path / "state", plan)
    weights = torch.randn(plan.weights)
    states.save(SiteState(1, {"personal": weights}, weights, data.scaling, medians=data.medians))
    kept = states.last()
    assert kept is not None
    models = SiteModels("oslo", plan, kept)
    table = Table({name: own[name] for name in ("dose", "ward", "age")})
    prepared = models.preparation("oslo")(table)
    assert {tuple(row) for row in data.local.test.x.tolist()} <= {tuple(row) for row in prepared.tolist()}
    plain = plan.model_copy(update={"levels": None})
    with refused("data", "prepare"):
        load_site_data({"name": str(tmp_path / "site.csv"), "prepare": "auto"}, None, 0, plain)
    np.savez(tmp_path / "site.npz", x=np.zeros((40, 3)), y=Y[:40])
    with refused("data"):
        load_site_data({"name": str(tmp_path / "site.npz")}, None, 0, plan)
