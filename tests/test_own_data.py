"""One's own data: files, folders and Python objects, the split they bring, and what is wrong with them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import refused
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

import fedcap
from fedcap.cli import main
from fedcap.errors import InputError
from fedcap.simulation import load_experiment

pytestmark = pytest.mark.usefixtures("data_folder")

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(120, 5)).astype(np.float32)
Y = np.arange(120) % 3
USERS = np.array(["ann", "bob", "eve", "zoe"]).repeat(30)
QUICK = {"rounds": 1, "workers": 1, "training": {"epochs": 1}}


def npz(path: Path, **arrays: object) -> str:
    np.savez(path / "mine.npz", **{"x": X, "y": Y, **arrays})  # type: ignore[arg-type]
    return str(path / "mine.npz")


def held(experiment: fedcap.Experiment) -> list[int]:
    federated = experiment.load_data()
    return [len(a) + len(b) for a, b in zip(federated.train, federated.test, strict=True)]


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


def test_nothing_in_a_file_is_unpickled(tmp_path: Path) -> None:
    path = npz(tmp_path, y=np.array([{"a": 1}] * 120, dtype=object))
    with refused("bad-file"):
        fedcap.Experiment(dataset=path).load_data()


def test_a_file_without_labels_says_what_it_has(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", images=X)
    with refused("missing-data"):
        fedcap.Experiment(dataset=str(tmp_path / "other.npz")).load_data()


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


class Squares(Dataset):  # type: ignore[type-arg]
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


def test_clients_and_a_split_may_come_with_the_arrays() -> None:
    table = {"data": (X, Y), "client": USERS, "test": np.arange(120) % 3 == 0}
    federated = fedcap.Experiment(dataset=table).load_data()
    assert [len(part) for part in federated.test] == [10] * 4


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
