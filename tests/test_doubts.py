"""Notes about data that may be wrong, and inputs of `predict` that do not fit the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import call, refused
from PIL import Image

import fedcap
from fedcap.data import FederatedData
from fedcap.data.doubts import doubts
from fedcap.data.own import from_arrays
from fedcap.data.tables import Table

pytestmark = pytest.mark.usefixtures("data_folder")

DRAW = np.random.default_rng(0)
AGE = DRAW.normal(50, 10, 120).round(3)
Y = np.array(["ill", "well"])[np.arange(120) % 2]
SITES = np.array(["oslo", "rome", "bern"])[np.arange(120) % 3]
QUICK: dict[str, Any] = {"rounds": 1, "workers": 1, "method": "fedavg", "training": {"lr": 0.1, "epochs": 1}}
ROLES = ("--set", "dataset.label=label", "--set", "dataset.client=client")


def notes(y: Any = Y, client: Any = None, **columns: Any) -> str:
    """Return all notes about a table with these columns."""
    frame = Table({"age": AGE, **{name: np.asarray(column) for name, column in columns.items()}})
    return "\n".join(doubts(from_arrays("data", frame, y, client)))


def replaced(values: Any, *first: Any) -> np.ndarray:
    return np.array(
        [*first, *values[len(first) :].tolist()], dtype=object if isinstance(first[0], str) else None
    )


def csv(path: Path, separator: str = ",", **columns: Any) -> Path:
    table = {"age": AGE, "label": Y, "client": SITES, **columns}
    lines = [
        separator.join(table),
        *(separator.join(map(str, row)) for row in zip(*table.values(), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def federated(path: Path) -> FederatedData:
    dataset = {"name": str(path), "label": "label", "client": "client"}
    return fedcap.Experiment(dataset=dataset, **QUICK).load_data()


def test_usual_data_has_no_notes() -> None:
    counts = DRAW.integers(0, 9, 120)
    assert notes(client=SITES, dose=DRAW.normal(size=120), count=counts, smoker=counts % 2 == 0) == ""
    year, zip_code = DRAW.integers(1950, 2020, 120), DRAW.integers(0, 9999, 120)
    assert notes(year=year, code=zip_code, score=DRAW.choice([-1, 0, 1, 9], 120)) == ""
    few = Table({"a": DRAW.integers(0, 2, 120), "b": DRAW.integers(0, 2, 120)})
    assert doubts(from_arrays("data", few, Y)) == []  # all features have few values: equal rows are usual


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"y": replaced(Y, "Ill")}, "'Ill', 'ill' differ only in case"),
        ({"y": replaced(Y, "wel")}, "only one sample has the class 'wel'"),
        ({"y": replaced(Y, "NA", "NA")}, "the class 'NA' looks like a missing value"),
        (
            {"client": replaced(SITES, "Oslo", "os lo")},
            "the clients 'Oslo', 'os lo', 'oslo' differ only in case",
        ),
        ({"client": replaced(SITES, "?", "?")}, "the client '?' looks like a missing value"),
        ({"patient": np.arange(7, 127)}, "column 'patient' has another whole number in each row"),
        ({"patient_id": DRAW.permutation(9000)[:120]}, "column 'patient_id' has another whole number"),
        ({"visit": 20240100 + DRAW.integers(1, 31, 120)}, "column 'visit' holds dates as numbers"),
        ({"weight": replaced(AGE, -999.0, -999.0)}, "column 'weight' has the value -999 2 times"),
        ({"weight": replaced(AGE, 9999.0, 9999.0)}, "column 'weight' has the value 9999 2 times"),
        ({"code": np.where(Y == "ill", 7, 3)}, "column 'code' has one value for each class"),
        ({"y": ["ill"] * 120}, "all labels are 'ill'"),
    ],
    ids=str,
)
def test_a_likely_mistake_has_a_note(more: dict[str, Any], expected: str) -> None:
    assert expected in notes(**more)


def test_samples_that_occur_twice_are_counted() -> None:
    twice = np.concatenate([AGE[:60], AGE[:60]])
    found = doubts(from_arrays("data", Table({"age": twice}), np.concatenate([Y[:60], Y[:60]])))
    assert len(found) == 1
    assert found[0].startswith("60 of 120 samples repeat another one")


def test_data_check_counts_classes_and_clients_and_prints_notes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = csv(tmp_path / "a.csv", label=replaced(Y, "Ill"))
    code, out, _ = call(capsys, "data", "check", path, *ROLES)
    assert code == 0
    assert "classes  Ill 1, ill 59, well 60" in out
    assert "clients  bern 40, oslo 40, rome 40" in out
    assert "note     the classes 'Ill', 'ill' differ only in case" in out


def test_data_check_refuses_a_client_that_a_run_would_refuse(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = csv(tmp_path / "a.csv", client=replaced(SITES, "tiny"))
    code, _, err = call(capsys, "data", "check", path, *ROLES)
    assert code == 2
    assert "client 'tiny' has 1 sample" in err


def test_clients_that_are_different_texts_are_different_clients(tmp_path: Path) -> None:
    sites = np.array(["1", "01", "1.0"])[np.arange(120) % 3]
    assert set(federated(csv(tmp_path / "a.csv", client=sites)).names) == {"1", "01", "1.0"}


def test_marks_of_thousands_have_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    income = [f"{1 + at % 9},{100 + at}" for at in range(120)]
    federated(csv(tmp_path / "a.csv", ";", income=income))
    assert "column 'income' has '1,100', which was read as 1.1" in caplog.text
    caplog.clear()
    decimals = [f"0,{100 + at}" for at in range(120)]
    points = [f"{1 + at % 9}.{100 + at}" for at in range(120)]
    federated(csv(tmp_path / "b.csv", ";", decimals=decimals, points=points))
    assert "column 'points' has '1.100', which was read as 1.1" in caplog.text
    assert "decimals" not in caplog.text


def test_a_damaged_or_special_file_is_refused(tmp_path: Path) -> None:
    with refused("bad-file", "client"):
        federated(csv(tmp_path / "zero.csv", client=replaced(SITES, "os\0lo")))
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    (tmp_path / "folder.csv").mkdir()
    for name in ("loop.csv", "folder.csv"):
        with refused("missing-path"):
            federated(tmp_path / name)


def test_an_open_quotation_mark_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for place, message in (("client", "a quotation mark is not closed"), ("label", "above it is not closed")):
        path = csv(tmp_path / "a.csv", **{place: replaced(SITES, '"oslo')})
        code, _, err = call(capsys, "data", "check", path, *ROLES)
        assert code == 2
        assert message in err


def images(folder: Path, top: int) -> Path:
    for place in range(8):
        path = folder / f"class{place % 2}" / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(DRAW.integers(0, top, (6, 6)).astype(np.uint16)).save(path)
    return folder


def test_images_of_16_bits_are_refused_if_8_bits_cannot_hold_them(tmp_path: Path) -> None:
    dark = fedcap.Experiment(dataset=str(images(tmp_path / "dark", 256))).source.load()
    assert dark.samples.x.max() > 200
    with refused("deep-image"):
        fedcap.Experiment(dataset=str(images(tmp_path / "deep", 4096))).source.load()


def test_an_image_that_is_a_broken_link_is_refused(tmp_path: Path) -> None:
    (images(tmp_path / "dark", 256) / "class0" / "x.png").symlink_to(tmp_path / "gone.png")
    with refused("missing-file"):
        fedcap.Experiment(dataset=str(tmp_path / "dark")).source.load()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedcap.Run:
    """A run on a standardised table with a category."""
    folder = tmp_path_factory.mktemp("run")
    sex = DRAW.choice(["f", "m"], 120)
    frame = Table({"dose": AGE / 50, "sex": sex, "age": AGE, "label": Y, "client": SITES})
    dataset = {"data": frame, "standardise": True, "prepare": "auto"}
    fedcap.Experiment(dataset=dataset, **QUICK).run(out=folder / "run")
    return fedcap.read(folder / "run")


def new(**more: Any) -> Table:
    columns = {"age": AGE[:6], "dose": AGE[:6] / 50, "sex": np.array(["f", "m"] * 3), **more}
    return Table({name: np.asarray(column) for name, column in columns.items()})


def test_a_value_in_another_unit_has_a_warning(run: fedcap.Run, caplog: pytest.LogCaptureFixture) -> None:
    run.predict("oslo", new())
    assert caplog.text == ""
    run.predict("oslo", new(dose=replaced(AGE[:6] / 50, 1000.0)))
    assert "column 'dose' has the value 1000 in row 0 (counted from 0)" in caplog.text


def test_an_unknown_category_has_a_warning(run: fedcap.Run, caplog: pytest.LogCaptureFixture) -> None:
    run.predict("oslo", new(sex=["female", "m", "", "m", "f", "female"]))
    assert "column 'sex' has 2 values that the run's data did not have, such as 'female'" in caplog.text


def test_an_unexpected_column_of_text_is_an_unexpected_column(run: fedcap.Run) -> None:
    with refused("extra-feature", "patient"):
        run.predict("oslo", new(patient=[f"P{at}" for at in range(6)]))
    with refused("text-in-inputs", "age") as error:
        run.predict("oslo", new(age=["old"] * 6))
    assert "dataset.ignore" not in str(error.value)


def test_answers_do_not_replace_their_inputs(
    capsys: pytest.CaptureFixture[str], run: fedcap.Run, tmp_path: Path
) -> None:
    path = tmp_path / "new.csv"
    path.write_text("age,dose,sex\n50,1,f\n")
    code, _, err = call(capsys, "predict", run.path, path, "--client", "oslo", "-o", path)
    assert code == 2
    assert "is the file of the inputs" in err
    assert path.read_text() == "age,dose,sex\n50,1,f\n"
    code, _, err = call(capsys, "predict", run.path, path)
    assert code == 2
    assert "name the client: choose bern, oslo or rome" in err


def test_settings_may_start_with_the_mark_of_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("\ufeffrounds = 7\r\n", encoding="utf-8")
    from fedcap.runs.settings import read_toml

    assert read_toml(tmp_path / "a.toml") == {"rounds": 7}


def test_text_in_place_of_a_list_has_an_example_of_a_list() -> None:
    with pytest.raises(fedcap.InputError) as error:
        fedcap.Experiment(attack={"name": "ipm", "clients": "oslo"})
    assert 'clients should be a list, such as ["oslo"]' in str(error.value)
