"""EMNIST in the official idx format, and the stand-in that runs in its set-up."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import refused

from fedcap import data
from fedcap.simulation import Experiment

WEB_PAGE = b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n"


def idx(array: np.ndarray) -> bytes:
    header = [0x0800 + array.ndim, *array.shape]
    return np.array(header, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def write_emnist(
    folder: Path, part: str = "train", count: int = 124, zipped: bool = True
) -> tuple[Path, Path]:
    draw = np.random.default_rng(count)
    images = draw.integers(0, 256, (count, 28, 28), np.uint8)
    (folder / "emnist").mkdir(exist_ok=True)
    paths = []
    for kind, array in (("images-idx3", images), ("labels-idx1", np.arange(count) % 62)):
        path = folder / "emnist" / f"emnist-byclass-{part}-{kind}-ubyte{'.gz' if zipped else ''}"
        path.write_bytes(gzip.compress(idx(array)) if zipped else idx(array))
        paths.append(path)
    return paths[0], paths[1]


@pytest.mark.parametrize("zipped", [True, False])
def test_emnist_images_are_turned_upright(data_folder: Path, zipped: bool) -> None:
    write_emnist(data_folder, zipped=zipped)
    write_emnist(data_folder, "test", 62, zipped)
    dataset = data.make("emnist").load()
    stored = np.random.default_rng(124).integers(0, 256, (124, 28, 28), np.uint8)
    assert dataset.samples.x.shape == (186, 1, 28, 28)
    assert torch.equal(dataset.samples.x[0, 0], torch.from_numpy(stored[0].T.copy()))
    assert dataset.samples.y.tolist() == [*range(62), *range(62), *range(62)]
    assert dataset.notes == ()
    assert [dataset.class_names[k] for k in (0, 10, 36, 61)] == ["0", "A", "a", "z"]


def test_one_part_of_emnist_is_enough_and_one_line_says_so(data_folder: Path) -> None:
    write_emnist(data_folder)
    (note,) = data.make("emnist").load().notes
    assert "one of 2 parts" in note


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("damage", [lambda b: b[:-50], lambda b: b"\x99" + b[1:], lambda _: WEB_PAGE])
def test_a_corrupted_idx_file_is_refused_by_name_and_never_cached(
    data_folder: Path, which: int, zipped: bool, damage: Callable[[bytes], bytes]
) -> None:
    path = write_emnist(data_folder, zipped=zipped)[which]
    path.write_bytes(damage(path.read_bytes()))
    with refused("corrupt-dataset") as error:
        data.make("emnist").load()
    assert path.name in str(error.value) or "labels for" in str(error.value)
    assert not list((data_folder.parent / "cache").glob("decoded/*"))


def test_flipped_bytes_in_a_zipped_idx_file_are_noticed(data_folder: Path) -> None:
    images, _ = write_emnist(data_folder)
    content = bytearray(images.read_bytes())
    content[len(content) // 2] ^= 0x10
    images.write_bytes(content)
    with refused("corrupt-dataset"):
        data.make("emnist").load()


def test_emnist_runs_in_three_groups_with_a_fifth_of_the_clients(data_folder: Path) -> None:
    write_emnist(data_folder, count=62 * 30)
    experiment = Experiment(dataset={"name": "emnist", "clients": 9, "samples": 40})
    federated = experiment.load_data()
    for client in range(9):
        labels = torch.cat([federated.train[client].y, federated.test[client].y])
        first, last = ((0, 9), (10, 35), (36, 61))[client % 3]
        assert 32 <= int(((labels >= first) & (labels <= last)).sum()) <= 32 + 8
    assert experiment.participation == 0.2
    assert Experiment(dataset="emnist").source.clients == 100
    assert Experiment(dataset="emnist").source.samples == 300


def test_handwritten62_runs_in_the_set_up_of_emnist(data_folder: Path) -> None:
    draw = np.random.default_rng(0)
    y = np.concatenate([np.full(draw.integers(100, 157), k) for k in range(62)]).astype(np.uint8)
    np.savez(data_folder / "handwritten62.npz", x=np.zeros((len(y), 28, 28), np.uint8), y=y)
    experiment = Experiment(dataset="handwritten62")
    federated = experiment.load_data()
    sizes = [len(a) + len(b) for a, b in zip(federated.train, federated.test, strict=True)]
    assert len(sizes) == 100
    assert sum(sizes) == pytest.approx(len(y), abs=20)
    assert experiment.participation == 0.2
    assert experiment.model_name == "cnn-emnist"
    groups = (range(10), range(10, 36), range(36, 62))
    for client in range(100):
        labels = torch.cat([federated.train[client].y, federated.test[client].y]).tolist()
        own = sum(label in groups[client % 3] for label in labels) / len(labels)
        assert own > 0.75
