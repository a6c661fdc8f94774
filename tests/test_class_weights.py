"""`training.class_weights = "balanced"`: each class has the same total weight in a client's loss."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from helpers import refused
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor, nn
from torch.nn import functional
from training_tools import (
    CLASSES,
    INPUTS,
    assert_near,
    batches_in_order,
    client_of,
    flat,
    perceptron,
    samples_of,
    with_batch_norm,
)

import fedcap
from fedcap import methods
from fedcap.methods.fedrod import balanced_softmax
from fedcap.methods.hardened import Floor
from fedcap.runs import to_toml
from fedcap.state import Samples
from fedcap.training import SGD, Network
from fedcap.training.sgd import balanced_weights

pytestmark = pytest.mark.usefixtures("seeded_modules")

BALANCED = SGD(0.1, 2, 5, shuffle=False, class_weights="balanced")


def imbalanced(count: int = 20) -> Samples:
    """Samples of which most are of class 0."""
    samples = samples_of(count)
    return Samples(samples.x, torch.where(torch.arange(count) % 4 > 0, 0, samples.y))


def by_scikit_learn(y: Tensor) -> Tensor:
    """Return the weight of each sample."""
    present = np.unique(y.numpy())
    found = dict(
        zip(present.tolist(), compute_class_weight("balanced", classes=present, y=y.numpy()), strict=True)
    )
    return torch.tensor([found[label] for label in y.tolist()])


def oracle(module: nn.Module, samples: Samples, anchor: nn.Module | None = None, pull: float = 0.0) -> Tensor:
    """Plain PyTorch: two epochs of SGD on the mean of the weighted losses."""
    module, weights = copy.deepcopy(module).train(), by_scikit_learn(samples.y).float()
    steps = torch.optim.SGD(module.parameters(), lr=0.1)
    for batch in batches_in_order(len(samples), 5, 2, True):
        steps.zero_grad()
        losses = functional.cross_entropy(module(samples.x[batch]), samples.y[batch], reduction="none")
        loss = (weights[batch] * losses).mean()
        if anchor is not None:
            pairs = zip(module.parameters(), anchor.parameters(), strict=True)
            loss = loss + pull / 2 * sum(((p - a.detach()) ** 2).sum() for p, a in pairs)
        loss.backward()
        steps.step()
    return flat(module)


@pytest.mark.parametrize("labels", [[0, 0, 0, 1, 1, 2], [3, 3, 3, 3, 1], [2, 2]])
def test_the_weights_are_those_of_scikit_learn(labels: list[int]) -> None:
    y = torch.tensor(labels)
    weights = balanced_weights(y)
    torch.testing.assert_close(weights[y].double(), by_scikit_learn(y), rtol=1e-6, atol=0)
    assert weights[y].mean() == pytest.approx(1)
    assert all(weights[label] == 0 for label in range(max(labels)) if label not in labels)


def chain() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.ReLU(), nn.Linear(8, CLASSES))


@pytest.mark.parametrize("build", [chain, perceptron], ids=["fast gradient", "autograd"])
def test_the_gradient_is_that_of_the_weighted_loss(build: Any) -> None:
    network, samples = Network(build()), imbalanced()
    weights = balanced_weights(samples.y)
    found = network.cross_entropy_gradient(samples.x, samples.y, weights).clone()
    assert (network._fast[samples.x.shape] is not None) == (build is chain)
    module = copy.deepcopy(network.module).double()
    losses = functional.cross_entropy(module(samples.x.double()), samples.y, reduction="none")
    (by_scikit_learn(samples.y) * losses).mean().backward()
    expected = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-6)
    plain = network.cross_entropy_gradient(samples.x, samples.y)
    assert not torch.allclose(plain, found, rtol=0.01)


@pytest.mark.parametrize("build", [chain, perceptron, with_batch_norm])
@pytest.mark.parametrize("method", ["fedavg", "ditto", "local"])
def test_clients_follow_the_weighted_loss(method: str, build: Any) -> None:
    received, own, samples = build(), build(), imbalanced()
    client = client_of(build, samples, BALANCED)
    options = {"lambda_": 0.8} if method == "ditto" else {}
    models = flat(received)[None] if method != "local" else torch.empty(0, len(flat(received)))
    trained = methods.make(method, **options).train(client, models, {"personal": flat(own)})
    if method == "fedavg":
        assert_near(trained.update, oracle(received, samples) - flat(received))
    elif method == "local":
        assert_near(trained.state["personal"], oracle(own, samples))
    else:
        assert_near(trained.update, oracle(received, samples) - flat(received))
        assert_near(trained.state["personal"], oracle(own, samples, received, 0.8))


def test_fedrod_weighs_the_personal_head_only() -> None:
    module, samples, personal = perceptron(), imbalanced(), nn.Linear(8, CLASSES)
    received, first, weights = flat(module), flat(personal), by_scikit_learn(samples.y).float()
    body, generic = module[:2], module[2]
    both = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (module, personal)]
    for batch in batches_in_order(20, 5, 2, True):
        features = body(samples.x[batch])
        logits = generic(features)
        for steps in both:
            steps.zero_grad()
        balanced_softmax(logits, samples.y[batch], samples.y).backward()
        answer = logits.detach() + personal(features.detach())
        losses = functional.cross_entropy(answer, samples.y[batch], reduction="none")
        (weights[batch] * losses).mean().backward()
        for steps in both:
            steps.step()
    client = client_of(perceptron, samples, BALANCED)
    trained = methods.make("fedrod").train(client, received[None], {"personal": received, "head": first})
    assert_near(trained.state["personal"], flat(module))
    assert_near(trained.state["head"], flat(personal))


def test_the_losses_by_which_clients_judge_models_are_weighted_too() -> None:
    """FedFomo's mixing and the hardened preset's floor compare losses of the client."""
    samples, models = imbalanced(), torch.stack([flat(perceptron()) for _ in range(3)])
    client = client_of(perceptron, samples, BALANCED)
    weights = by_scikit_learn(samples.y)

    def loss(model: Tensor, rows: slice) -> float:
        logits = Network(perceptron()).logits(model, samples.x[rows])
        losses = functional.cross_entropy(logits, samples.y[rows], reduction="none")
        return float((weights[rows] * losses).mean())

    made = methods.make("fedfomo", validation=0.2).train(client, models[1:], {"personal": models[0]})
    held = slice(16, 20)
    distances = torch.linalg.vector_norm(models[1:] - models[0], dim=1).tolist()
    gains = [loss(models[0], held) - loss(model, held) for model in models[1:]]
    assert made.feedback is not None
    assert made.feedback.tolist() == pytest.approx(
        [gain / far for gain, far in zip(gains, distances, strict=True)], rel=1e-4
    )
    floor = Floor(client, models[1], models[2], 100.0)
    assert floor.least == pytest.approx(loss(models[1], slice(None)), rel=1e-5)


def test_the_default_leaves_the_settings_and_the_digest() -> None:
    plain = fedcap.Experiment()
    assert "class_weights" not in plain.settings()["training"]
    assert fedcap.Experiment(training={"class_weights": None}).digest() == plain.digest()
    balanced = fedcap.Experiment(training={"class_weights": "balanced"})
    assert balanced.digest() != plain.digest()
    assert 'class_weights = "balanced"' in to_toml(balanced.settings())
    with refused("bad-value") as error:
        fedcap.Experiment(training={"class_weights": "equal"})
    assert "training.class_weights should be" in str(error.value)
    assert "(got 'equal')" in str(error.value)
