"""CIFAR-10: batches in both official versions, what is wrong with them, and the paper's set-up."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import refused

from fedcap import data
from fedcap.data.cifar10 import OFFICIAL
from fedcap.simulation import Experiment

WEB_PAGE = b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n"


def cifar_images(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.integers(0, 10, count, np.uint8), draw.integers(0, 256, (count, 3072), np.uint8)


def write_binary(folder: Path, name: str = "data_batch_1.bin", count: int = 40, seed: int = 0) -> Path:
    path = folder / "cifar-10-batches-bin" / name
    path.parent.mkdir(exist_ok=True)
    labels, pixels = cifar_images(count, seed)
    path.write_bytes(np.column_stack([labels, pixels]).tobytes())
    return path


def write_python(folder: Path, name: str = "data_batch_1", content: object = None, protocol: int = 2) -> Path:
    path = folder / "cifar-10-batches-py" / name
    path.parent.mkdir(exist_ok=True)
    labels, pixels = cifar_images(40)
    batch = {
        b"batch_label": b"one",
        b"labels": labels.tolist(),
        b"data": pixels,
        b"filenames": [b"a.png"] * 40,
    }
    path.write_bytes(pickle.dumps(batch if content is None else content, protocol=protocol))
    return path


def cifar() -> data.Dataset:
    return data.make("cifar10", verify=False).load()


def test_cifar10_binary_records_are_a_label_and_three_planes(data_folder: Path) -> None:
    write_binary(data_folder)
    labels, pixels = cifar_images(40)
    dataset = cifar()
    assert dataset.samples.y.tolist() == labels.tolist()
    assert torch.equal(dataset.samples.x, torch.from_numpy(pixels).view(40, 3, 32, 32))
    taken = dataset.take(torch.arange(40)).x
    assert taken.dtype == torch.float32
    torch.testing.assert_close(taken, dataset.samples.x.float() / 127.5 - 1)
    assert taken.min() >= -1
    assert taken.max() <= 1


def test_some_batches_are_enough_and_one_line_says_so(data_folder: Path) -> None:
    write_binary(data_folder, "data_batch_2.bin")
    write_binary(data_folder, "test_batch.bin", 10)
    dataset = cifar()
    (note,) = dataset.notes
    assert "2 of 6 batches" in note
    assert "50 images" in note
    assert str(data_folder) in note
    for batch in (1, 3, 4, 5):
        write_binary(data_folder, f"data_batch_{batch}.bin")
    assert cifar().notes == ()
    assert len(cifar().samples) == 5 * 40 + 10


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_the_python_version_has_the_same_images(data_folder: Path, protocol: int) -> None:
    write_python(data_folder, protocol=protocol)
    python = cifar()
    write_binary(data_folder)
    binary = cifar()
    assert torch.equal(python.samples.x, binary.samples.x)
    assert torch.equal(python.samples.y, binary.samples.y)


class Evil:
    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self.call = call, arguments

    def __reduce__(self) -> tuple[object, ...]:
        return self.call


def test_a_pickle_that_would_call_anything_is_refused_and_calls_nothing(data_folder: Path) -> None:
    victim = data_folder / "victim"
    for call in (Evil(os.mkdir, str(victim)), Evil(eval, "1"), Evil(np.fromfile, str(data_folder))):
        path = write_python(data_folder, content={b"data": call, b"labels": []})
        with refused("corrupt-dataset"):
            cifar()
        path.unlink()
    assert not victim.exists()


@pytest.mark.parametrize(
    "content",
    [
        {b"labels": [1]},
        {b"data": np.zeros((2, 3072)), b"labels": [1, 2]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]},
        {b"data": np.zeros((1, 3072), np.uint8), b"labels": [-1]},
        [1, 2],
    ],
)
def test_a_pickle_of_something_else_is_refused_by_name(data_folder: Path, content: object) -> None:
    write_python(data_folder, content=content)
    with refused("corrupt-dataset"):
        cifar()


def test_only_the_official_bytes_are_read_unless_told_otherwise(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_binary(data_folder)
    with refused("corrupt-dataset"):
        data.make("cifar10").load()
    monkeypatch.setitem(OFFICIAL, path.name, hashlib.md5(path.read_bytes()).hexdigest())
    assert len(data.make("cifar10").load().samples) == 40
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    with refused("corrupt-dataset"):
        data.make("cifar10").load()


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-100], lambda b: b"\xff" + b[1:], lambda b: b"", lambda _: WEB_PAGE]
)
def test_a_corrupted_batch_is_refused_by_name_and_never_cached(
    data_folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = write_binary(data_folder)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    for _ in range(2):
        with refused("corrupt-dataset"):
            cifar()
    assert not list((data_folder.parent / "cache").glob("decoded/*"))
    path.write_bytes(whole)
    assert len(cifar().samples) == 40


def test_cifar10_is_dealt_out_as_in_the_paper(data_folder: Path) -> None:
    write_binary(data_folder, count=6500)
    experiment = Experiment(dataset={"name": "cifar10", "verify": False})
    federated = experiment.load_data()
    assert [len(part) for part in federated.train] == [225] * 20
    assert [len(part) for part in federated.test] == [75] * 20
    blocks = [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert [part.y.unique().tolist() for part in federated.train] == [blocks[k // 4] for k in range(20)]
    assert federated.shape == (3, 32, 32)
    settings = experiment.settings()
    assert settings["model"] == "cnn-cifar10"
    assert (settings["rounds"], settings["participation"]) == (100, 1.0)
    assert settings["training"] == {
        "lr": 0.01, "epochs": 5, "batch_size": 10, "shuffle": False, "drop_last": True,
        "momentum": 0.0, "weight_decay": 0.0, "decay": 1.0,
    }  # fmt: skip


def test_options_of_the_partition_alone_change_cifar10s_own() -> None:
    for given, found in (
        ({"classes_per_client": 3}, {"classes_per_client": 3, "sharing": "blocks"}),
        ({"sharing": "random"}, {"classes_per_client": 2, "sharing": "random"}),
        ("pathological", {"classes_per_client": 2, "sharing": "random"}),
    ):
        experiment = Experiment(dataset={"name": "cifar10", "partition": given})
        assert experiment.settings()["dataset"]["partition"] == {"name": "pathological", **found}
