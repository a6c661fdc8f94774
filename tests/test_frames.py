"""One's own data from Python: data frames, labels of any kind, and what is missing in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import refused

import fedcap
from fedcap.data import Dataset

pytestmark = pytest.mark.usefixtures("data_folder")

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(120, 3))
Y = np.arange(120) % 3
WORDS = np.array(["no", "yes", "maybe"])[Y]
SITES = np.array(["Oslo", "Rome", "Bern"]).repeat(40)
TESTS = np.arange(120) % 4 == 0
QUICK = {"rounds": 1, "workers": 1, "training": {"epochs": 1}}


class Table:
    """A frame that is not pandas': columns by name, each an array."""

    def __init__(self, **columns: Any) -> None:
        self.columns = list(columns)
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns[self.columns[0]])

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]

    def to_numpy(self) -> Any:
        return np.column_stack(list(self._columns.values()))


def pandas_frame(**columns: Any) -> Any:
    return pytest.importorskip("pandas", reason="pandas is not installed").DataFrame(columns)


@pytest.fixture(params=[Table, pandas_frame], ids=["a frame", "pandas"])
def frame(request: pytest.FixtureRequest) -> Iterator[Any]:
    return request.param


def loaded(dataset: Any) -> Dataset:
    return fedcap.Experiment(dataset=dataset).source.load()


def patients(frame: Any, **more: Any) -> Any:
    return frame(age=X[:, 0], weight=X[:, 1], ill=X[:, 2] > 0, diagnosis=WORDS, hospital=SITES, **more)


# --- Frames


def test_a_frames_columns_are_features_labels_and_clients(frame: Any) -> None:
    table = {"data": patients(frame), "label": "diagnosis", "client": "hospital"}
    federated = fedcap.Experiment(dataset=table).load_data()
    assert federated.names == ("Bern", "Oslo", "Rome")
    assert federated.class_names == ("maybe", "no", "yes")
    expected = np.column_stack([X[:, :2], X[:, 2] > 0]).astype(np.float32)
    for name, train, test in zip(federated.names, federated.train, federated.test, strict=True):
        assert sorted(torch.cat([train.x, test.x]).tolist()) == sorted(expected[name == SITES].tolist())
    assert fedcap.Experiment(dataset=table, **QUICK).run().rounds == 1


def test_a_frame_whose_columns_say_what_they_are_is_taken_as_it_is(frame: Any) -> None:
    dataset = loaded(frame(a=X[:, 0], b=X[:, 1], target=Y, client=SITES, test=TESTS))
    assert dataset.samples.x.shape == (120, 2)
    assert dataset.class_names == ("0", "1", "2")
    assert dataset.owner_names == ("Bern", "Oslo", "Rome")
    assert dataset.test is not None
    assert dataset.test.tolist() == TESTS.tolist()


def test_inputs_may_be_a_frame_and_owners_an_array_beside_it(frame: Any) -> None:
    x = frame(a=X[:, 0], b=X[:, 1])
    expected = loaded((X[:, :2], WORDS)).digest()
    assert loaded((x, WORDS)).digest() == expected
    assert loaded({"x": x, "y": WORDS}).digest() == expected
    beside = {
        "data": patients(frame),
        "label": "diagnosis",
        "ignore": "hospital",
        "client": SITES,
        "test": TESTS,
    }
    dataset = loaded(beside)
    assert dataset.owner_names == ("Bern", "Oslo", "Rome")
    assert dataset.samples.x.shape == (120, 3)


def test_a_run_on_a_frame_goes_on_from_python(frame: Any, tmp_path: Path) -> None:
    table = {"data": patients(frame), "label": "diagnosis", "client": "hospital"}
    first = fedcap.Experiment(dataset=table, **QUICK).run(out=tmp_path / "run")
    again = fedcap.Experiment(dataset=table, **QUICK).run(out=tmp_path / "run")
    assert again.tacc == first.tacc
    with refused("other-run"):
        fedcap.Experiment(dataset={**table, "ignore": ["ill"]}, **QUICK).run(out=tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "code", "row"),
    [
        ({"colour": np.array(["red"] * 120)}, "text-in-table", "row 0"),
        ({"born": np.full(120, "2000-01-01", "datetime64[ns]")}, "text-in-table", ""),
        ({"age": np.where(np.arange(120) == 7, np.nan, X[:, 0])}, "missing-value", "row 7"),
        ({"age": np.array([None, *X[1:, 0]], dtype=object)}, "missing-value", "row 0"),
        ({"hospital": np.array([*SITES[1:], None], dtype=object)}, "missing-value", "row 119"),
        ({"diagnosis": np.array([float("nan"), *WORDS[1:]], dtype=object)}, "missing-value", "row 0"),
    ],
)
def test_a_cell_that_cannot_be_used_is_told_with_its_row_and_column(
    frame: Any, change: dict[str, Any], code: str, row: str
) -> None:
    columns = {"age": X[:, 0], "diagnosis": WORDS, "hospital": SITES, **change}
    with refused(code) as error:
        loaded({"data": frame(**columns), "label": "diagnosis", "client": "hospital"})
    assert row in str(error.value)
    assert f"column {next(iter(change))!r}" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_frame_without_a_column_of_labels_says_how_to_name_it(frame: Any) -> None:
    with refused("missing-label"):
        fedcap.Experiment(dataset=patients(frame))
    with refused("unknown-name"):
        fedcap.Experiment(dataset={"data": patients(frame), "label": "diagnose"})
    with refused("not-a-frame"):
        loaded({"data": (X, Y), "label": "diagnosis"})


def test_pandas_own_kinds_of_columns() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(
        {
            "count": pandas.array([1, 2] * 60, dtype="Int64"),
            7: pandas.array([0.5, 1.5] * 60, dtype="Float64"),
            "label": pandas.Categorical(WORDS, categories=["yes", "no", "maybe", "never"]),
            "client": pandas.array(SITES, dtype="string"),
        },
        index=[f"p{row}" for row in range(120)],
    )
    dataset = loaded(frame)
    assert dataset.samples.x[:2].tolist() == [[1, 0.5], [2, 1.5]]
    assert dataset.class_names == ("maybe", "no", "yes")
    assert dataset.owner_names == ("Bern", "Oslo", "Rome")
    assert loaded((X, frame["label"])).class_names == ("maybe", "no", "yes")
    assert loaded((X, frame[["label"]])).samples.y.tolist() == dataset.samples.y.tolist()
    for column in ("count", "client"):
        broken = frame.copy()
        broken.loc["p5", column] = pandas.NA
        with refused("missing-value"):
            loaded(broken)
    with refused("name-taken"):
        loaded(pandas.concat([frame, frame[["label"]]], axis=1))


# --- Arrays by name, and labels of any kind


def test_inputs_and_labels_may_be_given_by_name() -> None:
    table = {"x": X, "y": Y, "client": SITES, "test": TESTS}
    federated = fedcap.Experiment(dataset=table).load_data()
    assert federated.names == ("Bern", "Oslo", "Rome")
    assert [len(part) for part in federated.test] == [10] * 3
    assert fedcap.Experiment(dataset={"x": X, "y": Y, "clients": 4}, **QUICK).run().rounds == 1
    for wrong in ({"x": X}, {"name": "arrays", "y": Y}, {"x": X, "y": Y, "data": (X, Y)}):
        with refused("missing-data"):
            loaded(wrong)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (WORDS.tolist(), ("maybe", "no", "yes")),
        (WORDS.astype(object), ("maybe", "no", "yes")),
        (WORDS.astype("S"), ("maybe", "no", "yes")),
        ((Y * 5).astype(object), ("0", "5", "10")),
        ((Y * 5.0).tolist(), ("0", "5", "10")),
        (Y[:, None], ("0", "1", "2")),
        (Y > 1, ("False", "True")),
        ([torch.tensor(label) for label in Y.tolist()], ("0", "1", "2")),
        (["none", 1, 2.5] * 40, ("1", "2.5", "none")),
    ],
)
def test_labels_of_any_kind_become_classes(labels: Any, names: tuple[str, ...]) -> None:
    dataset = loaded((X, labels))
    assert dataset.class_names == names
    plain = np.asarray(labels).reshape(-1)
    for name, place in zip(names, range(len(names)), strict=True):
        first = dataset.samples.y == place
        assert len({str(value) for value in plain[first.numpy()].tolist()}) == 1, name


def test_a_torch_dataset_may_have_labels_of_text() -> None:
    dataset = loaded([(torch.zeros(2), word) for word in WORDS.tolist()])
    assert dataset.class_names == ("maybe", "no", "yes")


@pytest.mark.parametrize(
    ("labels", "code"),
    [
        (["a", None] * 60, "missing-value"),
        (["a", float("nan")] * 60, "missing-value"),
        (np.where(Y == 0, np.nan, Y), "missing-value"),
        (np.array(["a", ""] * 60), "missing-value"),
        (np.array([b"a", b""] * 60), "missing-value"),
        ([1.5, 2] * 60, "bad-value"),
        (np.where(Y == 0, np.inf, Y), "bad-value"),
        ([{"a": 1}] * 120, "bad-value"),
        (Y.astype(complex), "bad-value"),
        (["a", "b"], "data-shape"),
    ],
)
def test_labels_and_owners_that_cannot_be_used_are_one_line(labels: Any, code: str) -> None:
    for dataset in ((X, labels), {"x": X, "y": Y, "client": labels}):
        with refused(code):
            loaded(dataset)


def test_inputs_that_are_no_numbers_are_one_line() -> None:
    assert loaded((X.astype(object), Y)).samples.x.dtype == torch.float32
    mixed = np.array([["red", 1.0]] * 120, dtype=object)
    with refused("data-shape"):
        loaded((mixed, Y))
    with refused("data-shape"):
        loaded((X[:0], Y[:0]))


def test_a_client_with_a_single_sample_is_named_and_told_what_to_do() -> None:
    users = np.array(["ann"] * 59 + ["bob"] + ["eve"] * 59 + ["zoe"])
    with refused("too-few-samples"):
        fedcap.Experiment(dataset={"x": X, "y": Y, "client": users}).load_data()
    with refused("too-few-samples"):
        fedcap.Experiment(dataset={"x": X, "y": Y, "client": users, "test": TESTS}).load_data()
