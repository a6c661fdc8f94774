"""Networks as functions of one flat vector, and the layout of that vector."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers import refused
from torch import Tensor, nn
from training_tools import (
    CLASSES,
    INPUTS,
    assert_near,
    batches_in_order,
    flat,
    initial_weights,
    module_at,
    perceptron,
    samples_of,
    seeded,
    steps_by_hand,
    trained,
    with_batch_norm,
)

from fedcap.training import SGD, Layout, Learner, Network, fit, fresh_network

pytestmark = pytest.mark.usefixtures("seeded_modules")


class Tied(nn.Module):
    """Two layers that share one matrix, and a head."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(INPUTS, INPUTS)
        self.second = nn.Linear(INPUTS, INPUTS)
        self.second.weight = self.first.weight
        self.head = nn.Linear(INPUTS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def with_frozen_body() -> nn.Module:
    module = perceptron()
    module[0].weight.requires_grad_(False)
    module[0].bias.requires_grad_(False)
    return module


def test_the_layout_gives_every_tensor_its_place_without_gaps():
    layout = Layout.of(perceptron())
    assert [(slot.name, slot.start, slot.stop) for slot in layout.slots] == [
        ("0.weight", 0, 40),
        ("0.bias", 40, 48),
        ("2.weight", 48, 72),
        ("2.bias", 72, 75),
    ]
    assert [tuple(slot.shape) for slot in layout.slots] == [(8, 5), (8,), (3, 8), (3,)]
    assert layout.size == layout.trainable == 75
    assert layout.last_layer == slice(48, 75)
    assert Layout.of(nn.Linear(INPUTS, CLASSES)).last_layer == slice(0, 18)


def test_the_digest_of_a_layout_never_changes():
    """Models on disk and other sites name their layout by it."""
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 3))
    expected = "218815dacee03f5122e1484acc81899d7430c157dee4120b870b67db43125935"
    assert Layout.of(module).digest() == expected


def test_frozen_parameters_come_after_those_that_learn():
    layout = Layout.of(with_frozen_body())
    assert [slot.name for slot in layout.slots] == ["2.weight", "2.bias", "0.weight", "0.bias"]
    assert (layout.trainable, layout.size) == (27, 75)
    assert layout.last_layer == slice(0, 27)


def test_running_statistics_come_last_and_the_count_of_batches_is_no_weight():
    layout = Layout.of(with_batch_norm())
    assert [slot.name for slot in layout.slots][-2:] == ["1.running_mean", "1.running_var"]
    assert layout.size - layout.trainable == 16
    assert layout.last_layer == slice(layout.trainable - 27, layout.trainable)


def test_tied_weights_are_one_place_in_the_vector():
    layout = Layout.of(Tied())
    assert [slot.name for slot in layout.slots].count("first.weight") == 1
    assert "second.weight" not in [slot.name for slot in layout.slots]
    assert layout.size == sum(p.numel() for p in Tied().parameters())
    module, samples = Tied(), samples_of(20)
    expected = steps_by_hand(module, batches_in_order(20, 10, 2, True), samples, 0.1)
    assert_near(trained(module, samples, SGD(lr=0.1, epochs=2, shuffle=False)), expected)


@pytest.mark.parametrize("pull", [0.0, 3.0])
def test_frozen_parameters_are_moved_neither_by_gradient_nor_by_pull(pull: float):
    start = flat(with_frozen_body())
    learner = Learner(Network(with_frozen_body()), start, start + 1, pull)
    fit([learner], samples_of(20), SGD(lr=0.1), seeded())
    assert torch.equal(learner.weights[27:], start[27:])
    assert not torch.equal(learner.weights[:27], start[:27])


def test_running_statistics_follow_the_samples_and_not_the_pull():
    start, samples = initial_weights(with_batch_norm, 0), samples_of(10)
    trainable = Layout.of(with_batch_norm()).trainable
    learner = Learner(Network(with_batch_norm()), start, start + 100, 3.0)
    fit([learner], samples, SGD(lr=0.01, epochs=1, batch_size=10, shuffle=False), seeded())
    hidden = module_at(with_batch_norm, start)[0](samples.x).detach().double().numpy()
    mean = 0.1 * hidden.mean(axis=0)
    variance = 0.9 + 0.1 * hidden.var(axis=0, ddof=1)
    found = learner.weights[trainable:].numpy()
    np.testing.assert_allclose(found, np.concatenate([mean, variance]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("build", [perceptron, with_batch_norm, with_frozen_body, Tied])
def test_weights_go_into_a_network_and_come_out_the_same(build: Callable[[], nn.Module]):
    module = build()
    expected, x = flat(module), samples_of(6).x
    outputs = copy.deepcopy(module).eval()(x).detach()
    assert torch.equal(Network(copy.deepcopy(module)).weights, expected)
    network = Network(build())
    torch.testing.assert_close(network.logits(expected, x), outputs)
    assert torch.equal(network.weights, expected)
    assert torch.equal(flat(network.module), expected)
    named = {**dict(network.module.named_parameters()), **dict(network.module.named_buffers())}
    for slot in network.layout.slots:
        part = expected[slot.start : slot.stop].view(slot.shape)
        assert torch.equal(named[slot.name].detach(), part)


def test_a_module_without_weights_to_train_is_refused():
    with refused("no-weights"):
        Network(nn.ReLU())


def test_a_fresh_network_is_a_function_of_the_seed():
    with torch.random.fork_rng():
        torch.manual_seed(5)
        expected = flat(perceptron())
    before = torch.get_rng_state()
    assert torch.equal(fresh_network(perceptron, 5).weights, expected)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(initial_weights(perceptron, 6), expected)
