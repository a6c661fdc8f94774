"""The cache of decoded data: decoded once, never wrong, and never needed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcap import data
from fedcap.data.cache import cached
from fedcap.data.files import content_hash
from fedcap.state import Samples

X = torch.arange(120, dtype=torch.uint8).reshape(40, 3)


class Decoder:
    """Decodes a small data set with everything in it, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> data.Dataset:
        self.calls += 1
        owners = torch.arange(40) % 4
        test = torch.arange(40) % 5 == 0
        return data.Dataset(
            Samples(X.clone(), torch.arange(40) % 2), ("no", "yes"), owners, tuple("abcd"), test, ("a note",)
        )


@pytest.fixture
def decoder(data_folder: Path) -> Decoder:
    """A decoder, and an empty cache."""
    return Decoder()


def entry(data_folder: Path) -> Path:
    (found,) = (data_folder.parent / "cache" / "decoded").iterdir()
    return found


def test_a_data_set_is_decoded_once_and_is_the_same_after_that(decoder: Decoder) -> None:
    plain = decoder()
    for _ in range(3):
        dataset = cached("thing", {"files": {"a": "1"}}, decoder)
        for name in ("class_names", "owner_names", "notes"):
            assert getattr(dataset, name) == getattr(plain, name)
        for one, other in (
            (dataset.samples.x, plain.samples.x),
            (dataset.samples.y, plain.samples.y),
            (dataset.owners, plain.owners),
            (dataset.test, plain.test),
        ):
            assert one is not None
            assert other is not None
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
        assert dataset.digest() == plain.digest()
    assert decoder.calls == 2


def test_another_name_source_or_option_is_decoded_by_itself(decoder: Decoder) -> None:
    for name, source in (("a", {"f": "1"}), ("b", {"f": "1"}), ("a", {"f": "2"}), ("a", {"f": "1", "w": 5})):
        cached(name, source, decoder)
    assert decoder.calls == 4


def test_what_a_program_does_to_cached_arrays_stays_with_it(decoder: Decoder) -> None:
    for _ in range(2):
        dataset = cached("thing", {}, decoder)
        assert torch.equal(dataset.samples.x, X)
        dataset.samples.x.zero_()


@pytest.mark.parametrize("damage", ["truncate", "flip", "facts", "remove"])
def test_a_damaged_entry_is_made_again(data_folder: Path, decoder: Decoder, damage: str) -> None:
    cached("thing", {}, decoder)
    folder = entry(data_folder)
    content = bytearray((folder / "x.npy").read_bytes())
    if damage == "truncate":
        (folder / "x.npy").write_bytes(content[:-10])
    elif damage == "flip":
        content[-5] ^= 0xFF
        (folder / "x.npy").write_bytes(content)
    elif damage == "facts":
        facts = json.loads((folder / "dataset.json").read_text())
        (folder / "dataset.json").write_text(json.dumps(facts)[:-10])
    else:
        (folder / "y.npy").unlink()
    assert torch.equal(cached("thing", {}, decoder).samples.x, X)
    assert decoder.calls == 2
    cached("thing", {}, decoder)
    assert decoder.calls == 2
    found = sorted(path.name for path in entry(data_folder).iterdir())
    assert found == ["dataset.json", "owners.npy", "test.npy", "x.npy", "y.npy"]


def test_a_cache_that_cannot_be_written_is_done_without(
    data_folder: Path, decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_folder / "not-a-folder").write_text("")
    monkeypatch.setenv("FEDCAP_CACHE", str(data_folder / "not-a-folder" / "cache"))
    for calls in (1, 2):
        assert torch.equal(cached("thing", {}, decoder).samples.x, X)
        assert decoder.calls == calls
    assert content_hash(data_folder / "not-a-folder") == content_hash(data_folder / "not-a-folder")


def test_a_changed_file_is_read_again_even_if_its_size_is_the_same(data_folder: Path) -> None:
    path = data_folder / "mine.npz"
    found = []
    for value in (0.0, 1.0):
        np.savez(path, x=np.full((40, 2), value), y=np.arange(40) % 2)
        found.append((path.stat().st_size, data.make("npz", path=str(path)).load().digest()))
    assert found[0][0] == found[1][0]
    assert found[0][1] != found[1][1]
