"""The paper's data sets: read from small files in the official formats, flaws and corruption included."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcap import data
from fedcap.data import cifar10
from fedcap.registry import InputError
from fedcap.simulation import Experiment

WEB_PAGE = b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n"


# --- CIFAR-10


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
        with pytest.raises(InputError, match=r"data_batch_1 is corrupted.*would load"):
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
    with pytest.raises(InputError, match="data_batch_1 is corrupted"):
        cifar()


def test_only_the_official_bytes_are_read_unless_told_otherwise(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_binary(data_folder)
    with pytest.raises(InputError, match=r"data_batch_1\.bin is corrupted: its MD5"):
        data.make("cifar10").load()
    monkeypatch.setitem(cifar10.OFFICIAL, path.name, hashlib.md5(path.read_bytes()).hexdigest())
    assert len(data.make("cifar10").load().samples) == 40
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"data_batch_1\.bin is corrupted: its MD5"):
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
        with pytest.raises(InputError, match=r"data_batch_1\.bin is corrupted"):
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
    assert all(len(part.y.unique()) == 2 for part in federated.train)
    assert federated.shape == (3, 32, 32)
    settings = experiment.settings()
    assert settings["model"] == "cnn-cifar10"
    assert (settings["rounds"], settings["participation"]) == (100, 1.0)
    assert settings["training"] == {
        "lr": 0.01, "epochs": 5, "batch_size": 10, "shuffle": False, "drop_last": True
    }  # fmt: skip
    found = {key: settings["method"][key] for key in ("alpha", "phi", "lambda_", "t_norm")}
    assert found == {"alpha": 10, "phi": 0.3, "lambda_": 1, "t_norm": 10}


# --- EMNIST


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
    with pytest.raises(InputError, match="corrupted") as error:
        data.make("emnist").load()
    assert path.name in str(error.value) or "labels for" in str(error.value)
    assert not list((data_folder.parent / "cache").glob("decoded/*"))


def test_flipped_bytes_in_a_zipped_idx_file_are_noticed(data_folder: Path) -> None:
    images, _ = write_emnist(data_folder)
    content = bytearray(images.read_bytes())
    content[len(content) // 2] ^= 0x10
    images.write_bytes(content)
    with pytest.raises(InputError, match=r"images-idx3-ubyte\.gz is corrupted"):
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
    assert experiment.settings()["method"]["lambda_"] == 0.5
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


# --- WISDM


def record(user: int, activity: str, at: int, x: float = 0.0) -> str:
    return f"{user},{activity},{at},{x},{-x},9.8"


def write_wisdm(folder: Path, text: str) -> Path:
    path = folder / "WISDM_ar_v1.1" / "WISDM_ar_v1.1_raw.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def lines(user: int, activity: str, times: range) -> list[str]:
    return [record(user, activity, at, at / 8) + ";" for at in times]


def test_wisdm_windows_are_cut_by_user_in_order_of_time(data_folder: Path) -> None:
    text = [*lines(7, "Jogging", range(400)), *lines(3, "Walking", range(650))]
    np.random.default_rng(0).shuffle(text)
    write_wisdm(data_folder, "\n".join(text) + "\n")
    dataset = data.make("wisdm").load()
    assert dataset.samples.x.shape == (5, 3, 1, 200)
    assert dataset.owner_names == ("3", "7")
    assert dataset.owners is not None
    assert dataset.owners.tolist() == [0, 0, 0, 1, 1]
    assert [dataset.class_names[k] for k in dataset.samples.y] == ["Walking"] * 3 + ["Jogging"] * 2
    assert torch.equal(dataset.samples.x[1, 0, 0], torch.arange(200, 400) / 8)
    assert torch.equal(dataset.samples.x[:, 1], -dataset.samples.x[:, 0])
    (note,) = dataset.notes
    assert "50 readings left over" in note


def test_every_flaw_of_the_original_is_taken(data_folder: Path) -> None:
    good = lines(1, "Walking", range(200))
    good[3] += good[4]  # two records on one line
    good[4] = ""  # a blank line
    good[8] = good[8].replace(";", ",;")  # a stray comma
    good[9] = good[9].replace(";", ";;")  # a stray semicolon
    good[10] = good[10].replace(";", "")  # none at all
    good[11] = good[11].replace(";", "," + good[12])  # two records glued by a comma
    good[12] = ",;"
    good[13] = "," + good[13]
    bad = [
        "1,Walking,500,1.0,,2.0;",
        "1,Walking,501,1.0,2.0,;",
        "1,Walking,,1.0,2.0,3.0;",
        "1,,502,1.0,2.0,3.0;",
        "1,Dancing,503,1.0,2.0,3.0;",
        "1,Walking,504,1.0,2.0;",
        "1,Walking,505,1.0,nan,2.0;",
    ]
    write_wisdm(data_folder, "\r\n".join([*good[:100], *bad, "", " ", *good[100:]]) + "\n")
    dataset = data.make("wisdm").load()
    assert dataset.samples.x.shape == (1, 3, 1, 200)
    assert torch.equal(dataset.samples.x[0, 0, 0], torch.arange(200) / 8)
    (note,) = dataset.notes
    assert "7 malformed records skipped" in note


def test_the_quick_and_the_slow_reader_agree(data_folder: Path) -> None:
    text = [*lines(1, "Sitting", range(300)), *lines(2, "Standing", range(300))]
    write_wisdm(data_folder, "\n".join(text) + "\n")
    quick = data.make("wisdm", window=50).load()
    write_wisdm(data_folder, "\n".join([*text, "1,Walking,zero,1,2,3;"]) + "\n")
    slow = data.make("wisdm", window=50).load()
    assert torch.equal(quick.samples.x, slow.samples.x)
    assert torch.equal(quick.samples.y, slow.samples.y)


def test_a_window_has_the_activity_of_most_of_its_readings(data_folder: Path) -> None:
    text = [
        *lines(1, "Upstairs", range(110)),
        *lines(1, "Downstairs", range(110, 320)),
        *lines(1, "Sitting", range(320, 400)),
    ]
    write_wisdm(data_folder, "\n".join(text))
    dataset = data.make("wisdm").load()
    assert [dataset.class_names[k] for k in dataset.samples.y] == ["Upstairs", "Downstairs"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[: len(b) // 2 - 3],
        lambda b: b[:500] + b"\x8f" + b[501:],
        lambda _: WEB_PAGE,
        lambda _: b"",
        lambda _: b"a;b;c\n" * 50,
    ],
)
def test_a_corrupted_wisdm_file_is_refused_by_name_and_never_cached(
    data_folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = write_wisdm(data_folder, "\n".join(lines(1, "Walking", range(401))))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"WISDM_ar_v1\.1_raw\.txt is corrupted"):
        data.make("wisdm").load()
    assert not list((data_folder.parent / "cache").glob("decoded/*"))


def test_wisdm_has_a_client_per_user_and_standardises_by_its_training_part(data_folder: Path) -> None:
    text = [line for user in (4, 5, 9) for line in lines(user, "Walking", range(800))]
    write_wisdm(data_folder, "\n".join(text))
    raw = Experiment(dataset="wisdm").load_data()
    assert len(raw) == 3
    assert [len(part) for part in raw.train] == [3] * 3
    assert float(raw.train[0].x[:, 2].mean()) == pytest.approx(9.8, abs=1e-4)
    scaled = Experiment(dataset={"name": "wisdm", "standardise": True}).load_data()
    for before, after, test_before, test_after in zip(
        raw.train, scaled.train, raw.test, scaled.test, strict=True
    ):
        x = after.x[:, :2]
        torch.testing.assert_close(x.mean(dim=(0, 2, 3)), torch.zeros(2), atol=1e-5, rtol=0)
        torch.testing.assert_close(x.std(dim=(0, 2, 3), correction=0), torch.ones(2), atol=1e-5, rtol=0)
        mean, std = before.x[:, 0].mean(), before.x[:, 0].std(correction=0)
        torch.testing.assert_close(test_after.x[:, 0], (test_before.x[:, 0] - mean) / std)
    assert raw.partition_hash == scaled.partition_hash


# --- The cache


def test_a_data_set_is_decoded_once(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_binary(data_folder)
    first = cifar()
    monkeypatch.setattr(cifar10.Cifar10, "_decode", None)
    again = cifar()
    assert torch.equal(first.samples.x, again.samples.x)
    assert first.notes == again.notes
    assert first.digest() == again.digest() == data.Dataset(first.samples, first.class_names).digest()


def test_what_a_program_does_to_cached_arrays_stays_with_it(data_folder: Path) -> None:
    write_binary(data_folder)
    cifar()
    cifar().samples.x.zero_()
    assert cifar().samples.x.sum() > 0


def test_a_changed_file_is_read_again_even_if_its_size_is_the_same(data_folder: Path) -> None:
    write_binary(data_folder)
    first = cifar().digest()
    write_binary(data_folder, seed=1)
    assert cifar().digest() != first


@pytest.mark.parametrize("damage", ["truncate", "flip", "facts", "remove"])
def test_a_corrupted_cache_is_made_again(data_folder: Path, damage: str) -> None:
    write_binary(data_folder)
    first = cifar()
    x = first.samples.x.clone()
    (entry,) = (data_folder.parent / "cache" / "decoded").iterdir()
    content = bytearray((entry / "x.npy").read_bytes())
    if damage == "truncate":
        (entry / "x.npy").write_bytes(content[:-1000])
    elif damage == "flip":
        content[2000] ^= 0xFF
        (entry / "x.npy").write_bytes(content)
    elif damage == "facts":
        facts = json.loads((entry / "dataset.json").read_text())
        (entry / "dataset.json").write_text(json.dumps(facts)[:-10])
    else:
        (entry / "y.npy").unlink()
    assert torch.equal(cifar().samples.x, x)
    assert sorted(path.name for path in entry.iterdir()) == ["dataset.json", "x.npy", "y.npy"]


def test_a_cache_that_cannot_be_written_is_done_without(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_binary(data_folder)
    (data_folder / "not-a-folder").write_text("")
    monkeypatch.setenv("FEDCAP_CACHE", str(data_folder / "not-a-folder" / "cache"))
    assert len(cifar().samples) == 40


# --- The real files, if they are here


def real(name: str) -> data.Source:
    source = data.make(name)
    if not source.files():
        pytest.skip(f"{name} is not in FEDCAP_DATA")
    return source


def test_real_wisdm_has_5412_windows_of_36_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCAP_CACHE", str(tmp_path))
    source = real("wisdm")
    dataset = source.load()
    if "malformed" in " ".join(dataset.notes):
        pytest.skip("the original file, whose count differs")
    assert len(dataset.samples) == 5412
    assert len(dataset.owner_names) == 36


@pytest.mark.parametrize("name", ["cifar10", "handwritten62"])
def test_real_data_loads_in_under_a_second_the_second_time(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDCAP_CACHE", str(tmp_path))
    first = real(name).load()
    began = time.perf_counter()
    again = real(name).load()
    assert time.perf_counter() - began < 1
    assert first.digest() == again.digest()
    assert len(again.samples) in (8608, 20000, 60000)
