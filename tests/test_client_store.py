"""Clients' states between rounds: in memory or in a file, and a run that is killed while it writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from helpers import Killed, refused
from run_tools import SMALL, assert_same
from safetensors.torch import load_file

import fedcap
from fedcap.experiments.store import hash_weights
from fedcap.runs import CHECKPOINT
from fedcap.simulation import store as states
from fedcap.simulation.store import STATES, ClientStore


def state(value: float) -> dict[str, torch.Tensor]:
    return {"personal": torch.full((5,), value), "least": torch.tensor([value, -value])}


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every store uses a file from the first client on."""
    monkeypatch.setattr(states, "IN_MEMORY", 0)


@pytest.mark.parametrize("limit", [1 << 20, 60, 0], ids=["memory", "moved after the third client", "file"])
def test_a_store_returns_what_was_last_put(
    limit: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(states, "IN_MEMORY", limit)
    store = ClientStore()
    store.use_directory(tmp_path)
    for client, value in (("b", 1.0), ("a", 2.0), ("c", 3.0), ("a", 4.0)):
        store.put(client, state(value))
    assert list(store) == ["b", "a", "c"]
    assert store.get("z") is None
    for client, value in (("b", 1.0), ("a", 4.0), ("c", 3.0)):
        found = store.get(client)
        assert found is not None
        assert found.keys() == state(0).keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in state(value).items())
    again = ClientStore()
    again.use_directory(tmp_path)
    again.load_state_dict(store.state_dict())
    assert list(again) == list(store)
    assert torch.equal(again.get("a")["personal"], state(4.0)["personal"])
    assert (tmp_path / STATES).exists() == (limit < 100)


def test_a_row_of_the_last_checkpoint_is_not_overwritten(in_files: None, tmp_path: Path) -> None:
    store = ClientStore()
    store.use_directory(tmp_path)
    for client in "abc":
        store.put(client, state(1.0))
    saved = store.state_dict()
    store.saved()
    for value in (2.0, 3.0, 4.0):
        store.put("b", state(value))
    as_saved = ClientStore()
    as_saved.use_directory(tmp_path)
    as_saved.load_state_dict(saved)
    assert torch.equal(as_saved.get("b")["personal"], state(1.0)["personal"])
    assert torch.equal(store.get("b")["personal"], state(4.0)["personal"])


def test_the_file_has_a_row_for_each_client_and_for_each_change_since_the_checkpoint(
    in_files: None, tmp_path: Path
) -> None:
    store = ClientStore()
    store.use_directory(tmp_path)
    for number in range(30):
        for client in range(10):
            if (client + number) % 5 == 0:
                store.put(str(client), state(float(number)))
        store.state_dict()
        store.saved()
    assert (tmp_path / STATES).stat().st_size <= (10 + 2) * 7 * 4


def test_a_state_whose_bytes_changed_is_not_used(in_files: None, tmp_path: Path) -> None:
    store = ClientStore()
    store.use_directory(tmp_path)
    for client in "ab":
        store.put(client, state(1.0))
    content = bytearray((tmp_path / STATES).read_bytes())
    content[30] ^= 1
    (tmp_path / STATES).write_bytes(content)
    assert store.get("a") is not None
    with refused("damaged-run") as caught:
        store.get("b")
    assert caught.value.code == "damaged-run"


# --- Runs


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the states in memory."""
    path = tmp_path_factory.mktemp("runs") / "plain"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "IN_MEMORY", 16 << 20)
        fedcap.Experiment(**SMALL).run(out=path)
    return path


def assert_equal_runs(in_file: Path, plain: Path) -> None:
    """Assert that a run with states in a file left what a run with states in memory left."""
    assert (in_file / STATES).exists()
    assert not (plain / STATES).exists()
    assert_same(in_file, plain)
    assert hash_weights(in_file / CHECKPOINT) == hash_weights(plain / CHECKPOINT)


def test_a_run_with_states_in_a_file_has_the_same_bits(in_files: None, plain: Path, tmp_path: Path) -> None:
    result = fedcap.Experiment(**SMALL).run(out=tmp_path / "run")
    assert_equal_runs(tmp_path / "run", plain)
    one, other = fedcap.read(tmp_path / "run"), fedcap.read(plain)
    client = next(client.id for client in result.clients if not client.malicious)
    for reading in ("personal", "shared"):
        found, expected = (run.model(client, reading).state_dict() for run in (one, other))
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


class Disk:
    """Ends a run inside its nth write of a row, of which it writes one half, or at its nth flush."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.pwrite, self.fsync = os.pwrite, os.fsync

    def _ends(self) -> bool:
        self.left -= 1
        return self.left == 0

    def write(self, descriptor: int, content: memoryview, place: int) -> int:
        if self._ends():
            part = bytes(content)
            self.pwrite(descriptor, part[: len(part) // 2], place)
            raise Killed
        return self.pwrite(descriptor, content, place)

    def flush(self, descriptor: int) -> None:
        if self._ends():
            raise Killed
        self.fsync(descriptor)


@pytest.mark.parametrize("after", [2, 9, 12, 14, 15, 16, 17, 19, 22, 26, 30])
def test_a_run_killed_inside_a_write_of_states_resumes_to_the_same_bits(
    in_files: None, plain: Path, tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(after)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", disk.write)
        patch.setattr(os, "fsync", disk.flush)
        with pytest.raises(Killed):
            fedcap.Experiment(**SMALL).run(out=tmp_path / "run")
    fedcap.Experiment(**SMALL).run(out=tmp_path / "run")
    assert_equal_runs(tmp_path / "run", plain)


def test_a_run_whose_states_are_moved_to_a_file_when_it_resumes_has_the_same_bits(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(states, "IN_MEMORY", 16 << 20)
        patch.setattr(os, "fsync", Disk(10).flush)
        with pytest.raises(Killed):
            fedcap.Experiment(**SMALL).run(out=tmp_path / "run")
    assert (tmp_path / "run" / CHECKPOINT).exists()
    assert not (tmp_path / "run" / STATES).exists()
    monkeypatch.setattr(states, "IN_MEMORY", 0)
    fedcap.Experiment(**SMALL).run(out=tmp_path / "run")
    assert_equal_runs(tmp_path / "run", plain)


def test_a_checkpoint_without_its_file_of_states_is_damaged(in_files: None, tmp_path: Path) -> None:
    fedcap.Experiment(**SMALL).run(out=tmp_path / "run")
    (tmp_path / "run" / STATES).unlink()
    with refused("damaged-run"):
        fedcap.read(tmp_path / "run").model("0")


def test_states_in_memory_are_saved_in_the_first_format(plain: Path) -> None:
    tensors = load_file(plain / CHECKPOINT)
    assert {name for name in tensors if name.startswith("clients.")} == {
        "clients.clients",
        "clients.kept.personal",
    }
