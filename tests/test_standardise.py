"""Standardising: by each client's training part, by feature or channel, for every source of one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fedcap
from fedcap.data import FederatedData, Scaling
from fedcap.state import Samples

pytestmark = pytest.mark.usefixtures("data_folder")

DRAW = np.random.default_rng(0)
USERS = np.array(["ann", "bob", "eve"]).repeat(40)
VECTORS = (DRAW.normal(size=(120, 4)) * [1, 1e-9, 1e6, 0] + [5, 0, 1e6, 0.1]).astype(np.float32)
SERIES = (DRAW.normal(size=(120, 3, 16)) * 7 + 3).astype(np.float32)
PIXELS = DRAW.integers(0, 256, (120, 6, 8), np.uint8)


def expected(x: np.ndarray, learnt: np.ndarray) -> np.ndarray:
    """Standardise by hand, in double precision."""
    axes = (0, *range(2, x.ndim))
    x, learnt = x.astype(np.float64), learnt.astype(np.float64)
    mean = learnt.mean(axis=axes, keepdims=True)
    deviation = learnt.std(axis=axes, keepdims=True)
    constant = np.ptp(learnt, axis=axes, keepdims=True) == 0
    return np.where(constant, x - learnt[:1], (x - mean) / np.where(constant, 1, deviation))


def check(raw: FederatedData, scaled: FederatedData) -> None:
    assert scaled.names == raw.names
    assert (scaled.data_hash, scaled.partition_hash) == (raw.data_hash, raw.partition_hash)
    assert raw.scaling == {}
    assert tuple(scaled.scaling) == raw.names
    for place, name in enumerate(raw.names):
        learnt = raw.train[place].x.numpy()
        for before, after in ((raw.train, scaled.train), (raw.test, scaled.test)):
            x = before[place].x
            np.testing.assert_allclose(after[place].x, expected(x.numpy(), learnt), rtol=1e-4, atol=2e-4)
            assert torch.equal(scaled.scaling[name].apply(x), after[place].x)
            assert torch.equal(scaled.scaling[name].apply(x[0]), after[place].x[0])
            assert torch.equal(before[place].y, after[place].y)


def csv_of(folder: Path) -> str:
    rows = [",".join([*map(repr, map(float, x)), str(k % 3), USERS[k]]) for k, x in enumerate(VECTORS)]
    (folder / "mine.csv").write_text("a,b,c,d,label,client\n" + "\n".join(rows))
    return str(folder / "mine.csv")


def npz_of(folder: Path, x: np.ndarray) -> str:
    np.savez(folder / "mine.npz", x=x, y=np.arange(120) % 3, client=USERS)
    return str(folder / "mine.npz")


def folder_of(folder: Path) -> str:
    for k, user in enumerate(USERS):
        (folder / "pets" / user / f"class {k % 3}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(PIXELS[k]).save(folder / "pets" / user / f"class {k % 3}" / f"{k}.png")
    return str(folder / "pets")


@pytest.mark.parametrize(
    ("source", "shape", "pixels"),
    [
        (lambda folder: {"name": csv_of(folder)}, (4,), False),
        (lambda folder: {"name": npz_of(folder, VECTORS)}, (4,), False),
        (lambda folder: {"name": npz_of(folder, SERIES)}, (3, 1), False),
        (lambda folder: {"name": npz_of(folder, PIXELS)}, (1, 1, 1), True),
        (lambda folder: {"name": folder_of(folder)}, (1, 1, 1), True),
        (lambda _: {"x": SERIES, "y": np.arange(120) % 3, "client": USERS}, (3, 1), False),
        (lambda _: {"data": (PIXELS, np.arange(120) % 3), "clients": 4}, (1, 1, 1), True),
    ],
    ids=["csv", "npz", "series", "pixels", "folder", "arrays", "pixels from Python"],
)
def test_every_source_of_ones_own_is_standardised_by_each_clients_training_part(
    tmp_path: Path, source: Callable[[Path], dict[str, object]], shape: tuple[int, ...], pixels: bool
) -> None:
    table = source(tmp_path)
    raw = fedcap.Experiment(dataset=table).load_data()
    scaled = fedcap.Experiment(dataset={**table, "standardise": True}).load_data()
    assert (raw.pixels, scaled.pixels) == (pixels, pixels)
    check(raw, scaled)
    for scaling in scaled.scaling.values():
        assert scaling.mean.shape == scaling.deviation.shape == shape


def test_what_does_not_vary_becomes_zero_and_is_not_blown_up_where_it_does() -> None:
    x = torch.tensor([[0.1, 3.0], [0.1, 5.0], [0.1, 7.0]])
    scaling = Scaling.of(x)
    assert torch.equal(scaling.apply(x)[:, 0], torch.zeros(3))
    assert scaling.deviation[0] == 1
    assert scaling.apply(torch.tensor([2.1, 5.0])).tolist() == [pytest.approx(2.0), 0]


def test_the_servers_root_set_is_standardised_by_itself() -> None:
    x = np.concatenate([VECTORS, VECTORS + 1])
    table = {"x": x, "y": np.arange(240) % 3, "clients": 4, "samples": 30}
    method = "fltrust"
    raw = fedcap.Experiment(dataset=table, method=method).load_data()
    scaled = fedcap.Experiment(dataset={**table, "standardise": True}, method=method).load_data()
    assert raw.root is not None
    assert scaled.root is not None
    x = raw.root.x.numpy()
    np.testing.assert_allclose(scaled.root.x, expected(x, x), rtol=1e-4, atol=2e-4)
    assert tuple(scaled.scaling) == scaled.names


def test_windows_of_sensors_are_standardised_to_the_bit_as_before() -> None:
    generator = torch.Generator().manual_seed(0)
    train, test = (9 * torch.randn(n, 3, 1, 50, generator=generator) + 4 for n in (12, 5))
    deviation, mean = torch.std_mean(train, dim=(0, 2, 3), keepdim=True, correction=0)
    y = torch.zeros(12, dtype=torch.long)
    federated = FederatedData(("a",), [(Samples(train, y), Samples(test, y[:5]))], 1, "", "").standardised()
    assert torch.equal(federated.train[0].x, (train - mean) / deviation.clamp_min(1e-6))
    assert torch.equal(federated.test[0].x, (test - mean) / deviation.clamp_min(1e-6))


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_unscaled_measurements_of_patients_train_once_they_are_standardised(
    tmp_path: Path, kind: str
) -> None:
    from sklearn.datasets import load_breast_cancer

    cancer = load_breast_cancer()
    if kind == "npz":
        np.savez(tmp_path / "cancer.npz", x=cancer.data, y=cancer.target)
    else:
        names = ",".join([*cancer.feature_names, "diagnosis"])
        rows = np.column_stack([cancer.data.astype(str), cancer.target_names[cancer.target]])
        np.savetxt(tmp_path / "cancer.csv", rows, "%s", ",", header=names, comments="")
    table = {"name": str(tmp_path / f"cancer.{kind}"), "standardise": True}
    if kind == "csv":
        table["label"] = "diagnosis"
    result = fedcap.Experiment(dataset=table, rounds=10, workers=1).run()
    assert len(result.clients) == 20
    assert result.removed == {}
    assert result.tacc > 90
