"""A source's fingerprint depends on its content, and on nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import refused
from PIL import Image

from fedcap import data

pytestmark = pytest.mark.usefixtures("data_folder")

FILES = {
    "cifar10": ["cifar-10-batches-bin/data_batch_2.bin", "cifar-10-batches-bin/test_batch.bin"],
    "emnist": [
        "emnist/emnist-byclass-train-images-idx3-ubyte.gz",
        "emnist/emnist-byclass-train-labels-idx1-ubyte.gz",
    ],
    "handwritten62": ["handwritten62.npz"],
    "wisdm": ["WISDM_ar_v1.1/WISDM_ar_v1.1_raw.txt"],
}


def put(folder: Path, name: str, *contents: bytes) -> None:
    for file, content in zip(FILES[name], contents, strict=False):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)


@pytest.mark.parametrize("name", FILES)
def test_it_depends_on_what_is_in_the_files(data_folder: Path, name: str) -> None:
    found = set()
    # None of these can be decoded, so decoding them would be an error.
    contents = [(b"one", b"two"), (b"One", b"two"), (b"two", b"one"), (b"other", b"two")]
    for each in [(b"one",), *contents] if name == "cifar10" else contents:
        put(data_folder, name, *each)
        found.add(data.make(name).fingerprint())
        assert data.make(name).fingerprint() in found
    assert len(found) == 4 + (name == "cifar10")


@pytest.mark.parametrize("name", FILES)
def test_it_does_not_depend_on_where_the_files_are(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    put(data_folder, name, b"one", b"two")
    first = data.make(name).fingerprint()
    shutil.move(data_folder, tmp_path / "elsewhere")
    monkeypatch.setenv("FEDCAP_DATA", str(tmp_path / "elsewhere"))
    assert data.make(name).fingerprint() == first


def test_embedded_data_has_one_that_never_changes() -> None:
    assert data.make("digits").fingerprint() == "embedded"


# --- The user's own


def test_a_copied_npz_file_has_the_same_one(tmp_path: Path) -> None:
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    np.savez(first, x=np.ones((20, 3)), y=np.arange(20) % 2)
    shutil.copy(first, second)
    assert data.make("npz", path=str(first)).fingerprint() == data.make("npz", path=str(second)).fingerprint()
    np.savez(second, x=np.zeros((20, 3)), y=np.arange(20) % 2)
    assert data.make("npz", path=str(first)).fingerprint() != data.make("npz", path=str(second)).fingerprint()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        *((name, "missing-dataset") for name in FILES),
        ("npz", "missing-file"),
        ("folder", "missing-path"),
        ("a folder without classes", "bad-folder"),
    ],
)
def test_data_that_is_missing_or_unusable_is_the_error_that_loading_it_is(
    tmp_path: Path, name: str, code: str
) -> None:
    kind, options = name, {}
    if name not in FILES:
        kind = "npz" if name == "npz" else "folder"
        path = tmp_path if code == "bad-folder" else tmp_path / "gone.npz"
        options = {"path": str(path), "partition": "iid"}
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / "alone.png")
    source = data.make(kind, **options)
    with refused(code) as loading:
        source.load()
    with refused(code) as taking:
        source.fingerprint()
    assert str(taking.value) == str(loading.value)


def pets(folder: Path) -> Path:
    for place, label in enumerate(("cat", "dog")):
        (folder / label).mkdir(parents=True)
        for number in range(2):
            pixels = np.full((4, 4), 10 * place + number, np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number}.png")
    return folder


def changes(folder: Path) -> Iterator[None]:
    """Change the folder step by step: a picture, its name, its class, and one picture fewer."""
    Image.fromarray(np.full((4, 4), 99, np.uint8)).save(folder / "cat" / "0.png")
    yield
    (folder / "cat" / "0.png").rename(folder / "cat" / "9.png")
    yield
    (folder / "cat" / "9.png").rename(folder / "dog" / "9.png")
    yield
    (folder / "dog" / "9.png").unlink()
    yield


def test_a_folder_has_one_of_its_images_and_their_paths_inside_it(tmp_path: Path) -> None:
    folder = pets(tmp_path / "pets")
    found = [data.make("folder", path=str(folder)).fingerprint()]
    assert data.make("folder", path=str(pets(tmp_path / "copy"))).fingerprint() == found[0]
    for _ in changes(folder):
        found.append(data.make("folder", path=str(folder)).fingerprint())
    assert len(set(found)) == 5


def test_arrays_have_the_digest_of_their_data() -> None:
    x, y = torch.arange(40.0)[:, None], torch.arange(40) % 2
    source = data.make("arrays", data=(x, y))
    assert source.fingerprint() == source.load().digest()
    assert data.make("arrays", data=(x + 1, y)).fingerprint() != source.fingerprint()
    # What a run's directory keeps of it has the same one, though the data is gone.
    kept = {key: value for key, value in source.settings().items() if value is not None}
    assert data.make("arrays", **kept).fingerprint() == source.fingerprint()
    with refused("given-from-python"):
        data.make("arrays").fingerprint()
