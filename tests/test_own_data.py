"""One's own data: files, folders, data frames and other objects, their split, and what is wrong with them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import refused
from PIL import Image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

import fedcap
from fedcap.cli import main
from fedcap.data import Dataset
from fedcap.errors import InputError
from fedcap.simulation import load_experiment

pytestmark = pytest.mark.usefixtures("data_folder")

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(120, 5)).astype(np.float32)
Y = np.arange(120) % 3
USERS = np.array(["ann", "bob", "eve", "zoe"]).repeat(30)
V = DRAW.normal(size=(120, 3))
WORDS = np.array(["no", "yes", "maybe"])[Y]
SITES = np.array(["Oslo", "Rome", "Bern"]).repeat(40)
TESTS = np.arange(120) % 4 == 0
QUICK = {"rounds": 1, "workers": 1, "training": {"epochs": 1}}


def npz(path: Path, **arrays: object) -> str:
    np.savez(path / "mine.npz", **{"x": X, "y": Y, **arrays})  # type: ignore[arg-type]
    return str(path / "mine.npz")


def held(experiment: fedcap.Experiment) -> list[int]:
    federated = experiment.load_data()
    return [len(a) + len(b) for a, b in zip(federated.train, federated.test, strict=True)]


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
    return frame(age=V[:, 0], weight=V[:, 1], ill=V[:, 2] > 0, diagnosis=WORDS, hospital=SITES, **more)


# --- Files of arrays


def test_a_file_of_arrays_is_dealt_out_at_random(tmp_path: Path) -> None:
    experiment = fedcap.Experiment(dataset=npz(tmp_path))
    assert held(experiment) == [6] * 20
    assert experiment.model_name == "mlp"
    assert experiment.dataset_name == "mine"
    assert held(fedcap.Experiment(dataset={"name": npz(tmp_path), "clients": 4})) == [30] * 4


def test_a_file_that_says_whose_samples_are_whose_has_a_client_each(tmp_path: Path) -> None:
    experiment = fedcap.Experiment(dataset=npz(tmp_path, client=USERS))
    assert experiment.settings()["dataset"]["partition"] == {"name": "natural"}
    federated = experiment.load_data()
    assert federated.names == ("ann", "bob", "eve", "zoe")
    found = torch.cat([federated.train[2].x, federated.test[2].x])
    assert sorted(found[:, 0].tolist()) == sorted(X[USERS == "eve", 0].tolist())
    other = {"name": npz(tmp_path, client=USERS), "partition": "iid", "clients": 6}
    assert held(fedcap.Experiment(dataset=other)) == [20] * 6


def test_a_file_may_bring_its_own_split(tmp_path: Path) -> None:
    test = np.arange(120) % 4 == 0
    federated = fedcap.Experiment(dataset=npz(tmp_path, client=USERS, test=test)).load_data()
    tested = torch.cat([part.x[:, 0] for part in federated.test])
    assert sorted(tested.tolist()) == sorted(X[test, 0].tolist())


@pytest.mark.parametrize(
    ("shape", "becomes"),
    [((120, 9, 7), (1, 9, 7)), ((120, 9, 7, 3), (3, 9, 7)), ((120, 3, 9, 7), (3, 9, 7)), ((120, 9), (9,))],
)
def test_bytes_are_images_with_channels_first_between_minus_one_and_one(
    tmp_path: Path, shape: tuple[int, ...], becomes: tuple[int, ...]
) -> None:
    x = DRAW.integers(0, 256, shape, np.uint8)
    federated = fedcap.Experiment(dataset=npz(tmp_path, x=x)).load_data()
    assert federated.shape == becomes
    everything = torch.cat([part.x for part in (*federated.train, *federated.test)])
    assert (everything.min(), everything.max()) == (-1, 1)


def test_labels_may_be_any_names_or_numbers(tmp_path: Path) -> None:
    experiment = fedcap.Experiment(dataset=npz(tmp_path, y=np.array(["no", "yes", "maybe"])[Y]))
    assert experiment.load_data().class_names == ("maybe", "no", "yes")
    assert fedcap.Experiment(dataset=npz(tmp_path, y=Y * 10 - 5)).load_data().class_names == ("-5", "5", "15")


def test_a_file_runs_in_the_set_up_of_another_data_set(tmp_path: Path) -> None:
    y = np.arange(62).repeat(50)
    path = npz(tmp_path, x=np.zeros((len(y), 28, 28), np.uint8), y=y)
    experiment = fedcap.Experiment(dataset={"name": path, "like": "emnist"})
    settings = experiment.settings()
    assert (settings["participation"], settings["model"]) == (0.2, "cnn-emnist")
    assert settings["dataset"]["partition"]["groups"][0] == list(range(10))
    assert (settings["training"]["shuffle"], settings["method"]["phi"]) == (False, 0.1)
    sizes = held(experiment)
    assert len(sizes) == 100
    assert sum(sizes) == pytest.approx(len(y), abs=10)
    assert fedcap.Experiment(**settings).settings() == settings
    wider = {"name": path, "like": "emnist", "clients": 10, "partition": {"dominant": 0.5}}
    found = fedcap.Experiment(dataset=wider).settings()["dataset"]
    assert (found["clients"], found["partition"]["dominant"]) == (10, 0.5)
    assert len(found["partition"]["groups"]) == 3


@pytest.mark.parametrize(
    ("arrays", "code"),
    [
        ({"y": Y[:-1]}, "data-shape"),
        ({"y": X}, "data-shape"),
        ({"y": Y + 0.5}, "bad-value"),
        ({"x": X.astype(str)}, "data-shape"),
        ({"x": X[:, 0]}, "data-shape"),
        ({"x": np.where(X > 2, np.nan, X)}, "data-shape"),
        ({"client": USERS[:-1]}, "data-shape"),
        ({"test": np.arange(120)}, "bad-value"),
        ({"y": np.array([{"a": 1}] * 120, dtype=object)}, "bad-file"),  # nothing is unpickled
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_name(
    tmp_path: Path, arrays: dict[str, np.ndarray], code: str
) -> None:
    with refused(code) as error:
        fedcap.Experiment(dataset=npz(tmp_path, **arrays)).load_data()
    assert "mine.npz" in str(error.value)


def test_a_corrupted_file_is_refused_by_name(tmp_path: Path) -> None:
    path = Path(npz(tmp_path))
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[300] ^= 0xFF
    for content in (whole[:-200], bytes(flipped), b"<html>Not found</html>", b""):
        path.write_bytes(content)
        with refused("bad-file"):
            fedcap.Experiment(dataset=str(path)).load_data()
    path.write_bytes(whole)
    assert len(fedcap.Experiment(dataset=str(path)).load_data()) == 20


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("gone.npz", "missing-file"),
        ("./nowhere", "missing-path"),
        ("npz", "missing-path"),
    ],
)
def test_a_path_that_leads_nowhere_is_one_clear_line(name: str, code: str) -> None:
    with refused(code):
        fedcap.Experiment(dataset=name)


# --- Folders of images


def images(folder: Path, owners: tuple[str, ...] = (), colour: bool = False) -> Path:
    for owner in owners or ("",):
        for label in ("cat", "dog"):
            (folder / owner / label).mkdir(parents=True)
            for number in range(12):
                shape = (6, 8, 3) if colour and number % 2 else (6, 8)
                pixels = DRAW.integers(0, 256, shape, np.uint8)
                Image.fromarray(pixels).save(folder / owner / label / f"{number}.png")
    return folder


@pytest.mark.parametrize(("colour", "shape"), [(False, (1, 6, 8)), (True, (3, 6, 8))])
def test_a_folder_of_images_by_class(tmp_path: Path, colour: bool, shape: tuple[int, ...]) -> None:
    folder = images(tmp_path / "pets", colour=colour)
    experiment = fedcap.Experiment(dataset={"name": str(folder), "clients": 4})
    federated = experiment.load_data()
    assert federated.shape == shape
    assert federated.class_names == ("cat", "dog")
    assert held(experiment) == [6] * 4
    assert experiment.dataset_name == "pets"


def test_a_folder_of_images_by_client(tmp_path: Path) -> None:
    experiment = fedcap.Experiment(dataset=str(images(tmp_path / "pets", ("ann", "bob", "eve"))))
    assert held(experiment) == [24] * 3
    assert experiment.load_data().names == ("ann", "bob", "eve")
    first = experiment.load_data().data_hash
    pixels = np.zeros((6, 8), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "pets" / "ann" / "cat" / "3.png")
    assert experiment.load_data().data_hash != first


def test_hidden_images_are_left_out_but_the_folder_may_be_hidden_itself(tmp_path: Path) -> None:
    folder = images(tmp_path / ".pets")
    (folder / "cat" / "0.png").rename(folder / "cat" / ".0.png")
    (folder / "dog").rename(folder / ".dog")
    experiment = fedcap.Experiment(dataset={"name": str(folder), "clients": 2, "samples": 4})
    assert len(experiment.source.load().samples) == 11


def test_a_folder_that_cannot_be_used_names_what_is_wrong(tmp_path: Path) -> None:
    folder = images(tmp_path / "pets")
    broken = folder / "cat" / "5.png"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-30])
    with refused("bad-file"):
        fedcap.Experiment(dataset=str(folder)).load_data()
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(broken)
    with refused("data-shape"):
        fedcap.Experiment(dataset=str(folder)).load_data()
    (tmp_path / "empty").mkdir()
    with refused("bad-folder"):
        fedcap.Experiment(dataset=str(tmp_path / "empty"))


# --- Python objects


class Squares(TorchDataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 80

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        return torch.full((2, 3), float(at)), at % 2


@pytest.mark.parametrize(
    ("dataset", "shape", "samples"),
    [
        ((X, Y), (5,), 120),
        ([torch.from_numpy(X), Y.tolist()], (5,), 120),
        (TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), (5,), 120),
        (Squares(), (2, 3), 80),
        ([(np.zeros(4), k % 2) for k in range(60)], (4,), 60),
    ],
)
def test_arrays_and_torch_datasets_run_as_they_are(
    dataset: object, shape: tuple[int, ...], samples: int
) -> None:
    experiment = fedcap.Experiment(dataset={"data": dataset, "clients": 4}, **QUICK)
    assert experiment.load_data().shape == shape
    assert sum(held(experiment)) == samples
    assert experiment.run().rounds == 1
    assert len(fedcap.Experiment(dataset=dataset, **QUICK).load_data()) == 20


@pytest.mark.parametrize("dataset", [3, X, [1, 2, 3], {"data": "text"}, object()])
def test_an_object_that_is_no_data_is_one_clear_line(dataset: object) -> None:
    with pytest.raises(InputError):
        fedcap.Experiment(dataset=dataset).load_data()


def test_a_run_on_arrays_is_resumed_from_python_and_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {"data": (X, Y), "clients": 4}
    out = tmp_path / "run"
    fedcap.Experiment(dataset=table, **QUICK).run(out=out)
    config = tomllib.loads((out / "config.toml").read_text())["dataset"]
    provenance = json.loads((out / "provenance.json").read_text())
    assert config["name"] == "arrays"
    assert config["hash"] == provenance["data_hash"]
    assert fedcap.Experiment(dataset=table, **QUICK).run(out=out).rounds == 1
    with refused("other-run"):
        fedcap.Experiment(dataset={"data": (X + 1, Y), "clients": 4}, **QUICK).run(out=out)
    (out / "result.json").unlink()
    with pytest.raises(SystemExit) as stop:
        main(["run", "--resume", str(out)])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert "given from Python" in error
    assert len(error.strip().splitlines()) == 1


def test_a_run_on_a_file_is_resumed_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npz(tmp_path)
    monkeypatch.chdir(tmp_path)
    fedcap.Experiment(dataset="mine.npz", **QUICK).run(out="run")
    monkeypatch.chdir("/")
    experiment = load_experiment(tmp_path / "run")
    assert experiment.dataset_name == "mine"
    assert experiment.run(out=tmp_path / "run").rounds == 1
    npz(tmp_path, x=X + 1)
    (tmp_path / "run" / "result.json").unlink()
    with refused("changed-data"):
        load_experiment(tmp_path / "run").run(out=tmp_path / "run")


# --- Data frames, and labels of any kind


def test_a_frames_columns_are_features_labels_and_clients(frame: Any) -> None:
    table = {"data": patients(frame), "label": "diagnosis", "client": "hospital"}
    federated = fedcap.Experiment(dataset=table).load_data()
    assert federated.names == ("Bern", "Oslo", "Rome")
    assert federated.class_names == ("maybe", "no", "yes")
    expected = np.column_stack([V[:, :2], V[:, 2] > 0]).astype(np.float32)
    for name, train, test in zip(federated.names, federated.train, federated.test, strict=True):
        assert sorted(torch.cat([train.x, test.x]).tolist()) == sorted(expected[name == SITES].tolist())
    assert fedcap.Experiment(dataset=table, **QUICK).run().rounds == 1


def test_a_frame_whose_columns_say_what_they_are_is_taken_as_it_is(frame: Any) -> None:
    dataset = loaded(frame(a=V[:, 0], b=V[:, 1], target=Y, client=SITES, test=TESTS))
    assert dataset.samples.x.shape == (120, 2)
    assert dataset.class_names == ("0", "1", "2")
    assert dataset.owner_names == ("Bern", "Oslo", "Rome")
    assert dataset.test is not None
    assert dataset.test.tolist() == TESTS.tolist()


def test_inputs_may_be_a_frame_and_owners_an_array_beside_it(frame: Any) -> None:
    x = frame(a=V[:, 0], b=V[:, 1])
    expected = loaded((V[:, :2], WORDS)).digest()
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


@pytest.mark.parametrize(
    ("change", "code", "row"),
    [
        ({"colour": np.array(["red"] * 120)}, "text-in-table", "row 0"),
        ({"born": np.full(120, "2000-01-01", "datetime64[ns]")}, "text-in-table", ""),
        ({"age": np.where(np.arange(120) == 7, np.nan, V[:, 0])}, "missing-value", "row 7"),
        ({"age": np.array([None, *V[1:, 0]], dtype=object)}, "missing-value", "row 0"),
        ({"hospital": np.array([*SITES[1:], None], dtype=object)}, "missing-value", "row 119"),
        ({"diagnosis": np.array([float("nan"), *WORDS[1:]], dtype=object)}, "missing-value", "row 0"),
    ],
)
def test_a_cell_that_cannot_be_used_is_told_with_its_row_and_column(
    frame: Any, change: dict[str, Any], code: str, row: str
) -> None:
    columns = {"age": V[:, 0], "diagnosis": WORDS, "hospital": SITES, **change}
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
        loaded({"data": (V, Y), "label": "diagnosis"})


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
    assert loaded((V, frame["label"])).class_names == ("maybe", "no", "yes")
    assert loaded((V, frame[["label"]])).samples.y.tolist() == dataset.samples.y.tolist()
    for column in ("count", "client"):
        broken = frame.copy()
        broken.loc["p5", column] = pandas.NA
        with refused("missing-value"):
            loaded(broken)
    with refused("name-taken"):
        loaded(pandas.concat([frame, frame[["label"]]], axis=1))


# --- Arrays by name, and labels of any kind


def test_inputs_and_labels_may_be_given_by_name() -> None:
    table = {"x": V, "y": Y, "client": SITES, "test": TESTS}
    federated = fedcap.Experiment(dataset=table).load_data()
    assert federated.names == ("Bern", "Oslo", "Rome")
    assert [len(part) for part in federated.test] == [10] * 3
    assert fedcap.Experiment(dataset={"x": V, "y": Y, "clients": 4}, **QUICK).run().rounds == 1
    for wrong in ({"x": V}, {"name": "arrays", "y": Y}, {"x": V, "y": Y, "data": (V, Y)}):
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
    ids=lambda labels: type(labels).__name__,
)
def test_labels_of_any_kind_become_classes(labels: Any, names: tuple[str, ...]) -> None:
    dataset = loaded((V, labels))
    assert dataset.class_names == names
    plain = np.asarray(labels).reshape(-1)
    for name, place in zip(names, range(len(names)), strict=True):
        first = dataset.samples.y == place
        assert len({str(value) for value in plain[first.numpy()].tolist()}) == 1, name


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
    for dataset in ((V, labels), {"x": V, "y": Y, "client": labels}):
        with refused(code):
            loaded(dataset)


def test_inputs_that_are_no_numbers_are_one_line() -> None:
    assert loaded((V.astype(object), Y)).samples.x.dtype == torch.float32
    mixed = np.array([["red", 1.0]] * 120, dtype=object)
    with refused("data-shape"):
        loaded((mixed, Y))
    with refused("data-shape"):
        loaded((V[:0], Y[:0]))
