"""Folders that come split into train and test, and the names of clients and classes in pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import refused
from matplotlib.figure import Figure
from PIL import Image

import fedcap
from fedcap.cli import main
from fedcap.report import data as pictures
from fedcap.state import Samples

pytestmark = pytest.mark.usefixtures("data_folder")

DRAW = np.random.default_rng(0)


def images(folder: Path, *inside: str, count: int = 12) -> Path:
    for name in inside:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(DRAW.integers(0, 256, (6, 8), np.uint8)).save(folder / name / f"{number}.png")
    return folder


@pytest.mark.parametrize(
    ("tops", "tests", "note"),
    [
        (("train", "test"), {"test"}, ""),
        (("Training", "Testing"), {"Testing"}, ""),
        (("train", "val"), {"val"}, ""),
        (("train", "val", "test"), {"test"}, "images in val are used for training"),
        (("training", "validation", "test"), {"test"}, "images in validation are used for training"),
    ],
)
def test_train_and_test_folders_are_the_datas_own_split_and_not_clients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tops: tuple[str, ...], tests: set[str], note: str
) -> None:
    folder = images(tmp_path / "pets", *(f"{top}/{label}" for top in tops for label in ("cat", "dog")))
    experiment = fedcap.Experiment(dataset={"name": str(folder), "clients": 3})
    dataset = experiment.source.load()
    assert experiment.settings()["dataset"]["partition"] == {"name": "iid"}
    assert (dataset.class_names, dataset.owner_names) == (("cat", "dog"), ())
    assert dataset.test is not None
    in_test = [path.relative_to(folder).parts[0] in tests for path in experiment.source.files() or []]
    assert dataset.test.tolist() == in_test
    assert note in " ".join(dataset.notes)
    assert bool(dataset.notes) == bool(note)
    with pytest.raises(SystemExit):
        main(["data", "check", str(folder)])
    assert f"samples of 1×6×8 ({sum(in_test)} for testing only), 2 classes" in capsys.readouterr().out
    federated = experiment.load_data()
    assert federated.names == ("0", "1", "2")
    assert sum(map(len, federated.test)) == sum(in_test)


@pytest.mark.parametrize("tops", [("train", "eve"), ("test", "val"), ("train", "training"), ("train",)])
def test_folders_of_other_names_are_clients(tmp_path: Path, tops: tuple[str, ...]) -> None:
    folder = images(tmp_path / "pets", *(f"{top}/{label}" for top in tops for label in ("cat", "dog")))
    dataset = fedcap.Experiment(dataset=str(folder)).source.load()
    assert dataset.owner_names == tuple(sorted(tops))
    assert dataset.test is None


def test_a_folder_of_another_form_is_told_with_an_image_that_is_elsewhere(tmp_path: Path) -> None:
    with refused("bad-folder"):
        fedcap.Experiment(dataset=str(images(tmp_path / "flat", "train", "test")))
    folder = images(tmp_path / "pets", "ann/cat", "ann/dog")
    images(folder, "stray", count=1)
    with refused("bad-folder"):
        fedcap.Experiment(dataset=str(folder))
    with refused("bad-folder"):
        fedcap.Experiment(dataset=str(images(tmp_path / "deep", "a/b/c")))


# --- Names in pictures


def ticks(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], path: Path) -> list[str]:
    """Draw who has what, and return what is written beside the rows."""
    drawn: list[Figure] = []
    monkeypatch.setattr(pictures, "save", lambda figure, _: drawn.append(figure))
    parts = [Samples(torch.zeros(4, 2), torch.arange(4) % 2) for _ in names]
    pictures.draw_partition("mine", names, parts, parts, ("0", "1"), path)
    (figure,) = drawn
    figure.canvas.draw()
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_the_clients_names_are_beside_their_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = ("ann", "$b_o^b$", "a very long name of a hospital")
    assert ticks(monkeypatch, names, tmp_path) == ["ann", "$b_o^b$", "a very long name of…"]
    many = tuple(f"u{user:03}" for user in range(150))
    assert ticks(monkeypatch, many, tmp_path) == [f"u{user:03}" for user in range(0, 150, 3)]


def test_numbers_are_thinned_as_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = ticks(monkeypatch, tuple(map(str, range(100))), tmp_path)
    assert len(found) < 15
    assert "20" in found


def test_plot_names_the_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = images(
        tmp_path / "pets", *(f"{user}/{label}" for user in ("ann", "bob") for label in ("cat", "dog"))
    )
    for extra in ([], ["--json"]):
        with pytest.raises(SystemExit) as stop:
            main(["data", "plot", str(folder), "-o", str(tmp_path), *extra])
        assert not stop.value.code
    text, _, told = capsys.readouterr().out.partition("{")
    assert "  clients: ann, bob\n" in text
    assert json.loads("{" + told)["names"] == ["ann", "bob"]
