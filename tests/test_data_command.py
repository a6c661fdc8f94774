"""`fedcap data` and `fedcap list data`: what is installed; downloading, checking and drawing it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import call
from PIL import Image

from fedcap.data import fetch

pytestmark = pytest.mark.usefixtures("data_folder")


def write_handwritten(folder: Path) -> Path:
    y = np.arange(62).repeat(20).astype(np.uint8)
    np.savez(folder / "handwritten62.npz", x=np.zeros((len(y), 28, 28), np.uint8), y=y)
    return folder / "handwritten62.npz"


def test_list_data_shows_what_is_installed_and_where(
    capsys: pytest.CaptureFixture[str], data_folder: Path
) -> None:
    write_handwritten(data_folder)
    code, out, err = call(capsys, "list", "data", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["folders"][0] == str(data_folder)
    here = {row["name"]: row["here"] for row in found["datasets"]}
    assert here.keys() == {"cifar10", "digits", "emnist", "handwritten62", "wisdm"}
    assert (here["digits"], here["cifar10"]) == ("embedded", "no")
    assert here["handwritten62"].startswith("1 file")
    code, out, _ = call(capsys, "list", "data")
    assert code == 0
    assert str(data_folder) in out.replace("\n", "")


def test_check_prints_what_each_contains(capsys: pytest.CaptureFixture[str], data_folder: Path) -> None:
    path = write_handwritten(data_folder)
    code, out, _ = call(capsys, "data", "check", "--json")
    assert code == 0
    found = {row["name"]: row for row in json.loads(out)}
    assert found["digits"]["samples"] == 1797
    assert found["handwritten62"]["samples"] == 1240
    assert found["wisdm"]["state"] == "missing"
    code, out, _ = call(capsys, "data", "check", str(path))
    assert (code, "1,240 samples of 1×28×28, 62 classes" in out) == (0, True)
    path.write_bytes(path.read_bytes()[:-50])
    code, out, err = call(capsys, "data", "check")
    assert code == 1
    assert err == "fedcap: broken: handwritten62\n"
    assert "handwritten62.npz cannot be used: " in out


@pytest.mark.parametrize("name", ["cifar10", "emnist", "wisdm"])
def test_get_without_a_network_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], data_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("PATH", "")

    def no_network(*_: object, **__: object) -> None:
        raise ConnectionError("no network here")

    monkeypatch.setattr(fetch._Resuming, "_download", no_network)
    code, out, err = call(capsys, "data", "get", name)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert "by hand" in err
    assert "https://" in err
    assert str(data_folder) in err


def test_get_into_a_folder_that_cannot_be_written_says_so(
    capsys: pytest.CaptureFixture[str], data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_folder / "file").write_text("")
    monkeypatch.setenv("FEDCAP_DATA", str(data_folder / "file"))
    code, _, err = call(capsys, "data", "get", "wisdm")
    assert code == 2
    assert "cannot write to" in err


@pytest.mark.parametrize("name", ["digits", "table.npz"])
def test_plot_draws_the_partition_and_some_samples(
    capsys: pytest.CaptureFixture[str], data_folder: Path, name: str
) -> None:
    if name == "table.npz":
        x = np.random.default_rng(0).normal(size=(60, 7)).astype(np.float32)
        np.savez(data_folder / name, x=x, y=np.arange(60) % 2, client=np.arange(60) // 15)
        name = str(data_folder / name)
    out = data_folder.parent / "pictures"
    code, printed, err = call(capsys, "data", "plot", name, "-o", str(out), "--json")
    assert (code, err) == (0, "")
    facts = json.loads(printed)
    assert facts["clients"] == (20 if name == "digits" else 4)
    for kind in ("partition", "samples"):
        with Image.open(facts[kind]) as picture:
            assert picture.format == "PNG"
            assert picture.width > 500
            assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 10
    code, printed, _ = call(capsys, "data", "plot", name, "-o", str(out), "--set", "dataset.clients=3")
    assert code == 0
    assert "3 clients" in printed


def test_a_run_reports_an_incomplete_data_set_once(
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    data_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(data_folder.parent)
    batch = data_folder / "cifar-10-batches-bin" / "data_batch_4.bin"
    batch.parent.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (400, 3072))
    batch.write_bytes(np.column_stack([np.arange(400) % 10, pixels]).astype(np.uint8))
    small = ["--set=dataset.verify=false", "--set=dataset.samples=20", "--set=training.epochs=1"]
    command = ["run", "--dataset=cifar10", "--model=mlp", "--rounds=1", "--workers=1", *small]
    for _ in range(2):
        code, out, _ = call(capsys, *command)
        assert code == 0
        assert out.startswith("cifar10 · fedcap")
    (said,) = caplog.messages
    assert "1 of 6 batches" in said
