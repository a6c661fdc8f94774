"""The fast gradient equals autograd's for every chain of layers; other networks use autograd."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from fedcap import models
from fedcap.training import Network
from fedcap.training import fast_gradient as layers
from fedcap.training.fast_gradient import fast_gradient_of


@pytest.fixture(autouse=True)
def same_weights() -> None:
    """Two values of a window that agree to seven digits have different gradients in double precision."""
    torch.manual_seed(0)


def batch(shape: tuple[int, ...], count: int = 10, classes: int = 5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, *shape, generator=generator)
    return x, torch.randint(classes, (count,), generator=generator)


def by_autograd(network: Network, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient that autograd gives a copy of the network, in the order of the flat vector.

    In double precision, with all weights as PyTorch lays them out: with 1×1 kernels of stride 2 that lie
    otherwise than the image, PyTorch 2.13 itself gets some gradients wrong.
    """
    module = copy.deepcopy(network.module)
    for parameter in module.parameters():
        parameter.data = parameter.data.double().contiguous()
    names = [slot.name for slot in network.layout.slots if slot.stop <= network.layout.trainable]
    parameters = dict(module.named_parameters())
    found = torch.autograd.grad(
        functional.cross_entropy(module(x.double()), y), [parameters[name] for name in names]
    )
    flat = torch.empty(network.layout.trainable)
    for slot, gradient in zip(network.layout.slots, found, strict=True):
        slot.of(flat).copy_(gradient)
    return flat


def is_chain(network: Network, x: Tensor) -> bool:
    return fast_gradient_of(network.module, x.shape, network._place) is not None


def check(module: nn.Module, x: Tensor, y: Tensor) -> None:
    network = Network(module)
    assert is_chain(network, x)
    expected = by_autograd(network, x, y)
    for _ in range(2):  # what the first call left in the buffers does not matter
        found = network.cross_entropy_gradient(x, y)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("cnn-cifar10", (3, 32, 32)),
        ("cnn-emnist", (1, 28, 28)),
        ("cnn-wisdm", (3, 1, 200)),
        ("cnn-digits", (1, 8, 8)),
        ("mlp", (1, 8, 8)),
    ],
)
@pytest.mark.parametrize("count", [1, 7, 10])
def test_built_in_networks_are_chains(name: str, shape: tuple[int, ...], count: int):
    x, y = batch(shape, count)
    check(models.builder(name, shape, 5)(), x, y)
    check(models.builder(name, shape, 5)(), x.contiguous(memory_format=torch.channels_last), y)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_convolution_and_pool_agrees_with_autograd(data: st.DataObject):
    torch.manual_seed(0)
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    channels, middle, height, width = draw(1, 10), draw(1, 10), draw(3, 12), draw(3, 12)
    first = nn.Conv2d(
        channels,
        middle,
        (draw(1, 4), draw(1, 4)),
        stride=(draw(1, 2), draw(1, 2)),
        padding=(draw(0, 2), draw(0, 2)),
        bias=data.draw(st.booleans()),
    )
    layers = [first, nn.ReLU(), nn.MaxPool2d(draw(1, 2), stride=draw(1, 2))]
    if data.draw(st.booleans()):
        layers = [nn.ReLU(), nn.MaxPool2d(2, stride=1, padding=1), *reversed(layers[1:]), first]
    layers += [nn.Conv2d(middle, draw(1, 9), 1, padding=draw(0, 1)), nn.ReLU(), nn.Flatten()]
    x, y = batch((channels, height, width), draw(1, 6))
    try:
        features = nn.Sequential(*layers)(x).shape[1]
    except RuntimeError:  # nothing is left of so small an image
        reject()
    check(nn.Sequential(*layers, nn.Linear(features, 5, bias=data.draw(st.booleans()))), x, y)


def test_of_several_largest_the_first_gets_the_gradient():
    """Flat parts of an image make windows of equal values; autograd sends the gradient to the first."""
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(4, 4, 2), nn.Flatten(), nn.Linear(16, 5)
    )
    x, y = batch((1, 8, 8))
    x[:, :, 2:] = -1
    check(module, x, y)


def test_nested_sequentials_are_one_chain():
    body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sequential(nn.ReLU(), nn.MaxPool2d(2)))
    check(nn.Sequential(body, nn.Flatten(), nn.Linear(8 * 9, 5)), *batch((3, 8, 8)))


def test_one_layer_may_stand_in_several_places():
    relu = nn.ReLU()
    check(nn.Sequential(nn.Conv2d(1, 4, 3), relu, nn.Flatten(), relu, nn.Linear(144, 5)), *batch((1, 8, 8)))
    three = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), relu, nn.Linear(8, 8), relu, nn.Linear(8, 5))
    check(three, *batch((1, 8, 8)))


class Doubled(nn.Linear):
    """A layer that is not what it inherits from."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Own(nn.Module):
    """A network of its own making."""

    def __init__(self) -> None:
        super().__init__()
        self.only = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.only(x.flatten(1)).tanh()


def tied() -> nn.Module:
    layer = nn.Linear(12, 12)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer, nn.Linear(12, 5))


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 5))
    module[1].weight.requires_grad_(False)
    return module


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    module[1].register_forward_hook(lambda *_: None)
    return module


def on(*layers: nn.Module, features: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 5))


@pytest.mark.parametrize(
    "build",
    [
        Own,
        tied,
        frozen,
        hooked,
        lambda: nn.Sequential(nn.Flatten(), Doubled(12, 5)),
        lambda: nn.Sequential(nn.Flatten(2), nn.Linear(6, 5), nn.Flatten(), nn.Linear(10, 5)),
        on(nn.Conv2d(2, 2, 1, groups=2), features=12),
        on(nn.Conv2d(2, 2, 3, padding="same"), features=12),
        on(nn.Conv2d(2, 2, (1, 2), dilation=2), features=4),
        on(nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), features=12),
        on(nn.MaxPool2d(2, ceil_mode=True), features=4),
        on(nn.Dropout(0.0), features=12),
        on(nn.BatchNorm2d(2), features=12),
        on(nn.GELU(), features=12),
    ],
)
def test_other_networks_use_autograd(build: Callable[[], nn.Module]):
    x, y = batch((2, 2, 3))
    network = Network(build())
    assert not is_chain(network, x)
    found = network.cross_entropy_gradient(x, y).clone()
    loss = functional.cross_entropy(network.module(x), y)
    learn = [p for p in network.module.parameters() if p.requires_grad]
    expected = torch.autograd.grad(loss, learn)
    assert found.norm() > 0
    torch.testing.assert_close(found.norm(), torch.cat([g.flatten() for g in expected]).norm())


def test_a_batch_too_large_for_its_patches_uses_autograd(monkeypatch: pytest.MonkeyPatch):
    x, _ = batch((1, 8, 8))
    module = models.builder("cnn-digits", (1, 8, 8), 5)()
    assert is_chain(Network(module), x)
    monkeypatch.setattr(layers, "LARGEST_PATCHES", 1000)
    assert not is_chain(Network(module), x)


def test_a_bad_label_is_an_error():
    x, y = batch((1, 8, 8))
    y[3] = 7
    with pytest.raises((RuntimeError, IndexError)):
        Network(models.builder("mlp", (1, 8, 8), 5)()).cross_entropy_gradient(x, y)


def test_the_gradient_of_weights_that_are_nan_is_nan():
    """A diverged model must be seen to have diverged."""
    x, y = batch((1, 28, 28))
    network = Network(models.builder("cnn-emnist", (1, 28, 28), 5)())
    network.weights.fill_(torch.nan)
    assert network.cross_entropy_gradient(x, y).isnan().any()


def test_a_gradient_leaves_the_settings_of_the_process_unchanged():
    x, y = batch((1, 8, 8))
    before = torch.backends.mkldnn.enabled
    Network(models.builder("cnn-digits", (1, 8, 8), 5)()).cross_entropy_gradient(x, y)
    assert torch.backends.mkldnn.enabled == before
    assert torch.is_grad_enabled()
