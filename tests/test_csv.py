"""One's own table from a CSV file: separators, quotes, which column is what, and what is wrong with it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import call, refused

import fedcap
from fedcap.data import Dataset
from fedcap.runs import read

pytestmark = pytest.mark.usefixtures("data_folder")

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(120, 3)).round(3)
Y = np.array(["no", "yes", "maybe"])[np.arange(120) % 3]
SITES = np.array(["Oslo", "Rome", "Bern", "Łódź"]).repeat(30)
NAMES = ["a", "b", "c", "diagnosis", "hospital"]
ROLES = {"label": "diagnosis", "client": "hospital"}


def written(
    path: Path, names: list[str], *columns: object, separator: str = ",", encoding: str = "utf-8"
) -> str:
    rows = [names, *([str(cell) for cell in row] for row in zip(*columns, strict=True))]  # type: ignore[call-overload]
    text = "".join(separator.join(row) + "\n" for row in rows)
    path.write_text(text, encoding=encoding)
    return str(path)


def hospitals(path: Path, **form: str) -> str:
    return written(path, NAMES, *X.T, Y, SITES, **form)


def loaded(path: str | Path, /, **options: object) -> Dataset:
    return fedcap.Experiment(dataset={"name": str(path), **options}).source.load()


def test_named_columns_are_labels_and_clients_and_the_others_features(tmp_path: Path) -> None:
    experiment = fedcap.Experiment(dataset={"name": hospitals(tmp_path / "mine.csv"), **ROLES})
    assert experiment.settings()["dataset"]["partition"] == {"name": "natural"}
    assert experiment.dataset_name == "mine"
    federated = experiment.load_data()
    assert federated.names == ("Bern", "Oslo", "Rome", "Łódź")
    assert federated.class_names == ("maybe", "no", "yes")
    for name, train, test in zip(federated.names, federated.train, federated.test, strict=True):
        there = sorted(torch.cat([train.x, test.x]).tolist())
        assert there == sorted(X[name == SITES].astype(np.float32).tolist())


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_separators_and_encodings_are_recognised(tmp_path: Path, separator: str, encoding: str) -> None:
    plain = loaded(hospitals(tmp_path / "plain.csv"), **ROLES)
    other = loaded(hospitals(tmp_path / "other.csv", separator=separator, encoding=encoding), **ROLES)
    assert other.digest() == plain.digest()
    assert (other.class_names, other.owner_names) == (plain.class_names, plain.owner_names)


def test_quoted_fields_blank_lines_spaces_and_line_ends_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "quoted.csv"
    path.write_bytes(
        b'"size; in cm","weight, ""net""","label"\r\n\r\n "1.5" ,2,"a, b"\r\n'
        b'3,-4e1,"two\r\nlines"\r\n,,\r\n5, 6 ,"a, b"'
    )
    dataset = loaded(path, clients=2)
    assert dataset.class_names == ("a, b", "two\r\nlines")
    assert dataset.samples.x.tolist() == [[1.5, 2], [3, -40], [5, 6]]
    assert dataset.samples.y.tolist() == [0, 1, 0]


def test_quotes_decide_between_separators(tmp_path: Path) -> None:
    path = tmp_path / "european.csv"
    path.write_text('"a,1,x";"b,2,x";label\n1;2;0\n3;4;1\n')
    assert loaded(path, clients=2).samples.x.tolist() == [[1, 2], [3, 4]]


def test_between_semicolons_a_comma_is_a_decimal_point(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("a;b;label\n-1,5;2;x\n3;4,25e1;y\n")
    assert loaded(path, clients=2).samples.x.tolist() == [[-1.5, 2], [3, 42.5]]
    path.write_text("a;b;label\n1.234,5;2;x\n")
    with refused("text-in-table"):
        loaded(path)
    path.write_text('a\tb\tlabel\n"1,5"\t2\tx\n')
    with refused("text-in-table"):
        loaded(path)


@pytest.mark.parametrize("name", ["label", "Target", "y", "CLASS"])
def test_the_usual_names_of_columns_need_not_be_given(tmp_path: Path, name: str) -> None:
    test = np.array(["train", "test"])[(np.arange(120) % 4 == 0).astype(int)]
    path = written(
        tmp_path / "mine.csv", ["a", name, "test", "Client"], X[:, 0], np.arange(120) % 12, test, SITES
    )
    dataset = loaded(path)
    assert dataset.samples.x.shape == (120, 1)
    assert dataset.class_names == tuple(map(str, range(12)))
    assert dataset.owner_names == ("Bern", "Oslo", "Rome", "Łódź")
    assert dataset.test is not None
    assert dataset.test.tolist() == (np.arange(120) % 4 == 0).tolist()


def test_names_written_with_zeros_stay_as_they_are(tmp_path: Path) -> None:
    path = written(
        tmp_path / "mine.csv", ["a", "y", "client"], range(4), [10, 9, 10, 9], ["007", "7", "7", "007"]
    )
    dataset = loaded(path)
    assert dataset.class_names == ("9", "10")
    assert dataset.owner_names == ("007", "7")


def test_columns_can_be_left_out_and_those_without_a_name_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(
        tmp_path / "mine.csv", ["", "name", "a", "y"], range(60), ["x"] * 60, range(60), [0, 1] * 30
    )
    for ignore in ("name", ["name"]):
        experiment = fedcap.Experiment(dataset={"name": path, "ignore": ignore})
        assert experiment.load_data().shape == (1,)
        assert fedcap.Experiment(**experiment.settings()).settings() == experiment.settings()
    assert "a column without a name is left out" in caplog.text


def cells(column: int, row: int, cell: object) -> list[object]:
    """The columns of `hospitals` with one cell changed."""
    columns: list[list[object]] = [*X.T.tolist(), Y.tolist(), SITES.tolist()]
    columns[column][row] = cell
    return columns


@pytest.mark.parametrize(
    ("column", "row", "cell", "code", "line"),
    [
        (0, 15, "", "missing-value", "line 17"),
        (2, 0, "N/A", "missing-value", "line 2"),
        (1, 3, "nan", "missing-value", "line 5"),
        (1, 3, "red", "text-in-table", "line 5"),
        (1, 3, "inf", "data-shape", ""),
        (3, 4, "", "missing-value", "line 6"),
        (4, 119, " ", "missing-value", "line 121"),
    ],
)
def test_a_cell_that_cannot_be_used_is_told_with_its_line_and_column(
    tmp_path: Path, column: int, row: int, cell: str, code: str, line: str
) -> None:
    path = written(tmp_path / "mine.csv", NAMES, *cells(column, row, cell))
    with refused(code) as error:
        loaded(path, **ROLES)
    assert line in str(error.value)
    assert not line or f"column {NAMES[column]!r}" in str(error.value)
    assert str(error.value).startswith(path)
    assert "\n" not in str(error.value)


def test_all_columns_of_text_are_told_at_once(tmp_path: Path) -> None:
    with refused("text-in-table"):
        loaded(written(tmp_path / "mine.csv", [*NAMES, "y"], *X.T, Y, SITES, [0, 1] * 60))


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        ("a,y,label\n1,2,3\n", {}, "missing-label"),
        ("a,hospital,y\n1,2,3\n", {"client": "hospitel"}, "unknown-name"),
        ("a,b,y\n1,2,3\n", {"ignore": ["z"]}, "unknown-name"),
        ("a,b,y\n1,2,3\n", {"label": "b", "client": "b"}, "bad-value"),
        ("a,a,y\n1,2,3\n", {}, "name-taken"),
        ("y\n1\n", {}, "data-shape"),
        ("a,y\n", {}, "bad-file"),
        ("", {}, "bad-file"),
        ("1,2,3\n4,5,6\n", {}, "bad-file"),
        ("a,b,y\n1,2,3\n4,5\n", {}, "bad-file"),
        ("a,y\n1,0.5\n2,1.5\n", {}, "bad-value"),
        (
            "a,y,test\n1,0,1\n2,1,maybe\n",
            {},
            "bad-value",
        ),
        ("<!DOCTYPE html><p>404</p>", {}, "bad-file"),
        ("a,y\n1,\udcff\n", {}, "bad-file"),
    ],
)
def test_what_is_wrong_with_a_table_is_one_line_and_never_to_remove_it(
    tmp_path: Path, text: str, options: dict[str, object], code: str
) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with refused(code) as error:
        loaded(path, **options)
    assert str(path) in str(error.value)
    assert "remove" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["my table.csv", "TABLE.CSV", "table.tsv", "Übung.Csv"])
def test_names_with_spaces_capitals_and_a_tilde_are_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    hospitals(tmp_path / name)
    experiment = fedcap.Experiment(dataset={"name": f"~/{name}", **ROLES})
    assert experiment.settings()["dataset"]["path"] == str(tmp_path / name)
    assert experiment.dataset_name == Path(name).stem


def test_a_table_is_told_by_its_suffix_or_by_its_source(tmp_path: Path) -> None:
    path = hospitals(tmp_path / "mine.data")
    with refused("missing-path"):
        fedcap.Experiment(dataset=path)
    assert len(loaded("csv", path=path, **ROLES).samples) == 120
    with refused("missing-file"):
        fedcap.Experiment(dataset="gone.csv")
    with refused("missing-path", "csv"):
        fedcap.Experiment(dataset="csv")


def test_the_command_line_checks_shows_and_runs_a_table(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = hospitals(tmp_path / "mine.csv")
    roles = [f"--set=dataset.{key}={name}" for key, name in ROLES.items()]
    code, out, err = call(capsys, "data", "check", path, *roles)
    assert (code, err) == (0, "")
    summary, classes, owners = out.splitlines()
    assert summary == f"{path}: 120 samples of 3, 3 classes, 4 owners"
    assert classes.split()[:3] == ["classes", "maybe", "40,"]
    assert owners == "  clients  Bern 30, Oslo 30, Rome 30, Łódź 30"
    code, out, _ = call(capsys, "data", "check", path, *roles, "--json")
    (facts,) = json.loads(out)
    assert facts["class_names"] == ["maybe", "no", "yes"]
    assert facts["owner_names"] == ["Bern", "Oslo", "Rome", "Łódź"]
    quick = ["--rounds=1", "--workers=1", "--set=training.epochs=1", "--out=run"]
    code, _, err = call(capsys, "run", "--dataset", path, *roles, *quick)
    assert (code, err) == (0, "")
    config = tomllib.loads(Path("run/config.toml").read_text())["dataset"]
    assert {key: config[key] for key in ROLES} == ROLES
    assert (config["name"], config["path"]) == ("csv", path)
    assert config["ignore"] == []
    assert read(Path("run")).settings.dataset_name == "mine"
