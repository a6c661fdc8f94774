"""`fedcap predict` on the file that users have: tables and arrays, in any order of columns."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from helpers import call

import fedcap
from fedcap.data.tables import Table

NAMES = ["age", "dose", "weight"]
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(90, 3)).round(3)
Y = np.array(["ill", "well"])[(X[:, 0] > 0).astype(int)]
SITES = np.array(["Bern", "Oslo", "Rome"]).repeat(30)
PATIENTS = np.array([f"{number:03d}" for number in range(90)])


def write_csv(path: str, columns: dict[str, np.ndarray], separator: str = ",") -> None:
    with open(path, "w") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on a table of patients."""
    folder = tmp_path_factory.mktemp("patients")
    columns = {name: X[:, at] for at, name in enumerate(NAMES)}
    table = {"patient": PATIENTS, "hospital": SITES, **columns, "diagnosis": Y}
    write_csv(str(folder / "patients.csv"), table)
    dataset = {"name": str(folder / "patients.csv"), "label": "diagnosis", "client": "hospital"}
    settings = {"rounds": 2, "workers": 1, "training": {"lr": 0.1, "epochs": 2}}
    fedcap.Experiment(dataset={**dataset, "ignore": "patient"}, **settings).run(out=folder / "run")
    return folder


@pytest.fixture(autouse=True)
def _there(here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(here / "run")
    (tmp_path / "patients.csv").symlink_to(here / "patients.csv")


@pytest.fixture
def expected() -> np.ndarray:
    """The probabilities of all patients by Oslo's model."""
    table = Table({name: X[:, at] for at, name in enumerate(NAMES)})
    return fedcap.read("run").predict("Oslo", table).numpy()


def answers(capsys: pytest.CaptureFixture[str], file: str, *more: str) -> dict[str, object]:
    code, out, err = call(capsys, "predict", "run", file, "--client", "Oslo", "--json", *more)
    assert (code, err) == (0, "")
    return json.loads(out)


def probabilities(found: dict[str, object]) -> np.ndarray:
    return np.array([[row["p(ill)"], row["p(well)"]] for row in found["answers"]])  # type: ignore[attr-defined]


def test_the_file_of_the_run_is_answered_with_accuracy(
    capsys: pytest.CaptureFixture[str], expected: np.ndarray
) -> None:
    found = answers(capsys, "patients.csv")
    assert probabilities(found) == pytest.approx(expected, abs=1e-6)
    right = np.array(["ill", "well"])[expected.argmax(axis=1)] == Y
    assert found["accuracy"] == pytest.approx(100 * right.mean())


@pytest.mark.parametrize("kind", ["csv", "semicolons", "parquet", "npz"])
def test_columns_in_another_order_get_the_same_answers(
    capsys: pytest.CaptureFixture[str], expected: np.ndarray, kind: str
) -> None:
    columns = {"weight": X[:, 2], "age": X[:, 0], "dose": X[:, 1]}
    if kind == "npz":
        np.savez("new.npz", x=np.column_stack(list(columns.values())), features=np.array(list(columns)))
    elif kind == "parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table(columns), "new.parquet")
    elif kind == "semicolons":
        commas = {name: np.char.replace(values.astype(str), ".", ",") for name, values in columns.items()}
        write_csv("new.csv", commas, ";")
    else:
        write_csv("new.csv", columns)
    file = {"npz": "new.npz", "parquet": "new.parquet"}.get(kind, "new.csv")
    assert probabilities(answers(capsys, file)) == pytest.approx(expected, abs=1e-6)


def test_answers_as_csv_have_identifiers_classes_and_probabilities(
    capsys: pytest.CaptureFixture[str], expected: np.ndarray
) -> None:
    answers(capsys, "patients.csv", "--id", "patient", "-o", "answers.csv")
    with open("answers.csv") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["patient", "row", "answer", "confidence", "label", "p(ill)", "p(well)"]
    assert [row["patient"] for row in rows] == PATIENTS.tolist()
    assert [row["label"] for row in rows] == Y.tolist()
    assert [float(row["p(ill)"]) for row in rows] == pytest.approx(expected[:, 0].tolist(), abs=1e-6)
    assert {row["answer"] for row in rows} <= {"ill", "well"}


def test_a_column_called_id_identifies_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    write_csv("new.csv", {"ID": PATIENTS, **{name: X[:, at] for at, name in enumerate(NAMES)}})
    found = answers(capsys, "new.csv")
    assert [row["ID"] for row in found["answers"]] == PATIENTS.tolist()  # type: ignore[attr-defined]


def test_an_empty_column_of_labels_is_no_label(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {name: X[:, at] for at, name in enumerate(NAMES)}
    write_csv("new.csv", {**columns, "diagnosis": np.array([""] * 90)})
    assert answers(capsys, "new.csv")["accuracy"] is None


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"age": 0, "dose": 1}, "inputs has no column 'weight': the model's features are age, dose, weight"),
        ({"age": 0, "dosis": 1, "weight": 2}, "inputs has no column 'dose': did you mean 'dosis'?"),
        (
            {"age": 0, "dose": 1, "weight": 2, "name": 0},
            "inputs has an unexpected column 'name': the model's features are age, dose, weight"
            " (--id name, if it identifies the rows)",
        ),
    ],
)
def test_a_missing_or_extra_column_is_named(
    capsys: pytest.CaptureFixture[str], columns: dict[str, int], said: str
) -> None:
    write_csv("new.csv", {name: X[:, at] for name, at in columns.items()})
    code, out, err = call(capsys, "predict", "run", "new.csv", "--client", "Oslo")
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("age,dose,weight\n1,2,x\n", "column 'weight' must hold numbers"),
        ("age,dose,weight\n1,,3\n", "1 value is missing"),
        ("age,dose,weight\n", "a header and no rows"),
        ("age,dose,weight\n1,2\n", "line 2 has 2 values"),
        ("age,dose,weight,diagnosis\n1,2,3,dead\n", "the class 'dead', which the run does not have"),
    ],
)
def test_what_is_wrong_in_a_table_is_one_line(
    capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    Path("new.csv").write_text(content)
    code, _, err = call(capsys, "predict", "run", "new.csv", "--client", "Oslo")
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_a_column_of_identifiers_must_exist(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "predict", "run", "patients.csv", "--client", "Oslo", "--id", "patent")
    assert code == 2
    assert "has no column 'patent': did you mean 'patient'?" in err


def test_predict_says_how_accurate_the_model_is_on_its_own_clients_test_samples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (oslo,) = [client for client in fedcap.read("run").clients if client.id == "Oslo"]
    code, out, _ = call(capsys, "predict", "run", "patients.csv", "--client", "Oslo")
    assert code == 0
    assert f"the model is {oslo.personal:.1f} % accurate on the test samples of its own client" in out
    assert answers(capsys, "patients.csv")["tested"] == oslo.personal
    assert answers(capsys, "patients.csv", "--reading", "shared")["tested"] == oslo.shared


def test_errors_from_python_name_no_flag() -> None:
    run = fedcap.read("run")
    for client, inputs in (("Osl", X), (None, X), ("Oslo", X[:, :2]), ("Oslo", Table({"age": X[:, 0]}))):
        with pytest.raises(fedcap.InputError) as error:
            run.predict(client, inputs)
        assert "--" not in str(error.value)
