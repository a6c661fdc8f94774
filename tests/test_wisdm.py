"""WISDM: readings from a raw file with all the flaws of the original, windows, and a client per person."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import refused

from fedcap import data
from fedcap.simulation import Experiment

WEB_PAGE = b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n"


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
    with refused("corrupt-dataset"):
        data.make("wisdm").load()
    assert not list((data_folder.parent / "cache").glob("decoded/*"))


def test_wisdm_has_a_client_per_user_and_standardises_by_its_training_part(data_folder: Path) -> None:
    text = [line for user in (4, 5, 9) for line in lines(user, "Walking", range(800))]
    write_wisdm(data_folder, "\n".join(text))
    raw = Experiment(dataset="wisdm").load_data()
    assert raw.names == ("4", "5", "9")
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
    assert raw.names == scaled.names
