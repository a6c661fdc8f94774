"""The networks: exactly the paper's, and clear errors for a user's network that does not fit."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from helpers import refused
from torch import nn

import fedcap
from fedcap import models


def weights(name: str, shape: tuple[int, ...], classes: int) -> int:
    return sum(p.numel() for p in models.builder(name, shape, classes)().parameters())


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count", "features"),
    [
        ("cnn-digits", (1, 8, 8), 10, 13_706, 128),
        ("cnn-cifar10", (3, 32, 32), 10, 156_810, 1600),
        ("cnn-emnist", (1, 28, 28), 62, 86_910, 512),
        ("cnn-wisdm", (3, 1, 200), 6, 203_782, 3008),
        ("mlp", (1, 28, 28), 10, 199_210, 784),
        ("resnet18", (3, 32, 32), 10, 11_173_962, 512),
    ],
)
def test_a_network_has_the_weights_it_should(
    name: str, shape: tuple[int, ...], classes: int, count: int, features: int
) -> None:
    assert weights(name, shape, classes) == count
    linear = [m for m in models.builder(name, shape, classes)().modules() if isinstance(m, nn.Linear)]
    assert linear[0].in_features == features


def test_pooling_before_the_relu_is_the_papers_function() -> None:
    network = models.builder("cnn-cifar10", (3, 32, 32), 10)()
    assert isinstance(network, nn.Sequential)
    conv1, pool, relu, conv2, *_, flat, hidden, _, last = network
    x = torch.randn(4, 3, 32, 32)
    features = flat(pool(relu(conv2(pool(relu(conv1(x)))))))
    written = last(relu(hidden(features)))
    assert torch.equal(network(x), written)


@pytest.mark.parametrize("name", models.names())
def test_a_network_goes_to_another_process(name: str) -> None:
    build = pickle.loads(pickle.dumps(models.builder(name, (3, 24, 24), 5)))
    assert build()(torch.zeros(3, 3, 24, 24)).shape == (3, 5)


def test_resnet18_answers_each_input_alone() -> None:
    network = models.builder("resnet18", (1, 16, 16), 3)().train()
    x = torch.randn(4, 1, 16, 16)
    torch.testing.assert_close(network(x)[:1], network(x[:1]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("cnn-cifar10", (28, 28)), ("cnn-cifar10", (1, 15, 15)), ("cnn-wisdm", (3, 1, 8)), ("resnet18", (4,))],
)
def test_a_network_that_does_not_fit_the_data_says_so(name: str, shape: tuple[int, ...]) -> None:
    with refused("unsuitable-model", name):
        models.builder(name, shape, 10)


def test_the_smallest_image_that_fits_is_taken() -> None:
    assert weights("cnn-cifar10", (1, 16, 16), 2) > 0
    assert weights("cnn-wisdm", (3, 1, 16), 2) > 0


OWN = """
import torch
from torch import nn

def good():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

shared = lambda: good()
a_module = good()
def not_a_module(): return 3
class Pair(nn.Module):
    def forward(self, x): return x, x
"""


@pytest.fixture
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_networks.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("_own")
def test_ones_own_network_trains_with_workers() -> None:
    settings = {"rounds": 1, "training": {"epochs": 1}, "model": "own_networks:shared", "workers": 2}
    assert fedcap.Experiment(**settings).run().rounds == 1


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("a_module", "wrong-type"),
        ("not_a_module", "wrong-type"),
        ("Pair", "model-shape"),
        ("goood", "unknown-name"),
    ],
)
def test_a_network_of_ones_own_that_cannot_be_used_is_one_clear_line(name: str, code: str) -> None:
    with refused(code):
        fedcap.Experiment(model=f"own_networks:{name}", rounds=1, workers=1).run()
