"""The training loop: against plain PyTorch, and NumPy with all derivatives written out."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from training_tools import (
    CLASSES,
    INPUTS,
    assert_near,
    batches_in_order,
    flat,
    perceptron,
    samples_of,
    seeded,
    steps_by_hand,
    trained,
    with_batch_norm,
)

from fedcap.training import SGD, Learner, Network, fit

pytestmark = pytest.mark.usefixtures("seeded_modules")


@pytest.mark.parametrize("build", [perceptron, with_batch_norm])
@pytest.mark.parametrize(
    ("total", "size", "epochs", "drop_last"),
    [(20, 10, 1, True), (20, 10, 5, True), (23, 10, 2, True), (23, 10, 2, False), (23, 1000, 3, True)],
)
def test_training_is_plain_sgd(build: Callable[[], nn.Module], total: int, size: int, epochs: int, drop_last):
    module, samples = build(), samples_of(total)
    sgd = SGD(lr=0.1, epochs=epochs, batch_size=size, shuffle=False, drop_last=drop_last)
    expected = steps_by_hand(
        module, batches_in_order(total, size, epochs, drop_last), samples, 0.1, anchor=[], pull=0
    )
    assert not torch.allclose(expected, flat(module))
    assert_near(trained(module, samples, sgd), expected)


def softmax_by_hand(
    x: np.ndarray, y: np.ndarray, start: np.ndarray, lr: float, steps: int, anchor: np.ndarray, pull: float
) -> np.ndarray:
    """Full-batch steps of a linear softmax model on its flat weights, derivative by derivative."""
    w = start.astype(np.float64)
    number = len(x)
    for _ in range(steps):
        weight, bias = w[: CLASSES * INPUTS].reshape(CLASSES, INPUTS), w[CLASSES * INPUTS :]
        gradient = np.zeros_like(w)
        for n in range(number):
            logits = [bias[c] + sum(weight[c, i] * x[n, i] for i in range(INPUTS)) for c in range(CLASSES)]
            terms = np.exp(np.array(logits) - max(logits))
            error = terms / terms.sum()
            error[y[n]] -= 1
            for c in range(CLASSES):
                for i in range(INPUTS):
                    gradient[c * INPUTS + i] += error[c] * x[n, i] / number
                gradient[CLASSES * INPUTS + c] += error[c] / number
        w = w - lr * (gradient + pull * (w - anchor))
    return w


@pytest.mark.parametrize("pull", [0.0, 0.5])
def test_a_linear_model_follows_the_derivatives_written_out(pull: float):
    samples = samples_of(12)
    start, anchor = torch.randn(18, generator=seeded(1)), torch.randn(18, generator=seeded(2))
    learner = Learner(Network(nn.Linear(INPUTS, CLASSES)), start, anchor, pull)
    fit([learner], samples, SGD(lr=0.3, epochs=4, batch_size=12, shuffle=False), seeded())
    arrays = (tensor.numpy() for tensor in (samples.x, samples.y, start))
    expected = softmax_by_hand(*arrays, 0.3, 4, anchor.numpy(), pull)
    np.testing.assert_allclose(learner.weights.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_a_shuffled_order_is_a_function_of_the_generator():
    module, samples = perceptron(), samples_of(40)
    sgd = SGD(lr=0.1, epochs=2)
    assert torch.equal(trained(module, samples, sgd, seed=3), trained(module, samples, sgd, seed=3))
    assert not torch.equal(trained(module, samples, sgd, seed=3), trained(module, samples, sgd, seed=4))


def test_a_fixed_order_needs_no_generator():
    module, samples = perceptron(), samples_of(40)
    sgd = SGD(lr=0.1, epochs=2, shuffle=False)
    generator = seeded(3)
    before = generator.get_state()
    learner = Learner(Network(copy.deepcopy(module)), flat(module))
    fit([learner], samples, sgd, generator)
    assert torch.equal(generator.get_state(), before)
    assert torch.equal(learner.weights, trained(module, samples, sgd, seed=4))


def test_every_epoch_is_a_new_permutation_of_the_samples():
    batches = list(SGD(epochs=3, batch_size=5).batches(20, seeded()))
    assert [len(batch) for batch in batches] == [5] * 12
    epochs = [torch.cat(batches[start : start + 4]).tolist() for start in (0, 4, 8)]
    assert all(sorted(epoch) == list(range(20)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
    ("total", "drop_last", "sizes"),
    [(23, True, [10, 10]), (23, False, [10, 10, 3]), (20, True, [10, 10]), (7, True, [7]), (7, False, [7])],
)
def test_a_short_batch_is_dropped_unless_it_is_the_only_one(
    shuffle: bool, total: int, drop_last: bool, sizes: list[int]
):
    sgd = SGD(epochs=1, batch_size=10, shuffle=shuffle, drop_last=drop_last)
    found = [len(torch.arange(total)[batch]) for batch in sgd.batches(total, seeded())]
    assert found == sizes
