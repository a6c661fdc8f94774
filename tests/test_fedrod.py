"""Ditto and FedRoD: what their clients train, written out by hand."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import IN_ORDER, STEPS, Own, perceptron, refused
from torch import Tensor, nn
from torch.nn import functional
from training_tools import CLASSES, INPUTS, assert_near, client_of, samples_of

import fedcap
from fedcap import methods
from fedcap.methods.fedrod import Head, balanced_softmax
from fedcap.state import Tensors
from fedcap.training import SGD, Network


def answers(method: Any, build: Callable[[], nn.Module], own: Tensors, x: Tensor) -> Tensor:
    """Return the logits of a client's personal model."""
    network = Network(build())
    module = method.predictor(network, own).eval()
    with torch.no_grad():
        return network.answer(x, module)


# --- Ditto


def test_dittos_clients_train_fedcaps_pair():
    samples, sgd = samples_of(12), SGD(lr=0.1, epochs=2, batch_size=4)
    received, personal = (Network(perceptron()).weights.clone() for _ in range(2))
    ditto, ours = (
        methods.make(name, lambda_=0.7).train(
            client_of(perceptron, samples, sgd), received[None], {"personal": personal}
        )
        for name in ("ditto", "fedcap")
    )
    assert torch.equal(ditto.update, ours.update)
    assert torch.equal(ditto.state["personal"], ours.state["personal"])
    assert not torch.equal(ditto.state["personal"], personal)


# --- FedRoD


def test_balanced_softmax_adds_the_logarithm_of_the_class_counts():
    rng = np.random.default_rng(0)
    logits, y, labels = (
        rng.normal(size=(6, 4)),
        np.array([0, 1, 3, 3, 0, 1]),
        np.array([0, 0, 0, 1, 3, 3, 3, 3]),
    )
    counts = [3, 1, 0, 4]
    expected = 0.0
    for row, label in zip(logits, y, strict=True):
        terms = [n * math.exp(logit) for n, logit in zip(counts, row, strict=True)]
        expected -= math.log(terms[label] / sum(terms)) / len(y)
    tensor = torch.from_numpy(logits).requires_grad_()
    loss = balanced_softmax(tensor, torch.from_numpy(y), torch.from_numpy(labels))
    assert loss.item() == pytest.approx(expected)
    loss.backward()
    assert tensor.grad.isfinite().all()
    assert (tensor.grad[:, 2] == 0).all()


@pytest.mark.parametrize(
    ("build", "head", "split"),
    [
        (perceptron, None, 4),
        (perceptron, "2", 2),
        (Own, None, None),
        (Own, "classifier", None),
    ],
)
def test_fedrod_trains_generic_and_personal_head_as_written_out(build, head: str | None, split: int | None):
    samples = samples_of(12)
    method = methods.make("fedrod", head=head)
    network = Network(build())
    received = network.weights.clone()
    first = method.client_init(network)
    state = {"personal": torch.zeros_like(received), "head": first["head"] + 0.1}

    module = copy.deepcopy(network.module).train()
    if split is not None:
        body, tail = module[:split], module[split:]
    else:
        layers = module.classifier if head else module.classifier[2:]
        before = nn.Sequential() if head else module.classifier[:2]

        def body(x: Tensor) -> Tensor:
            return before(torch.tanh(module.neck(module.body(x))))

        tail = layers
    own = copy.deepcopy(tail)
    with torch.no_grad():
        for parameter in own.parameters():
            parameter += 0.1
    counts = torch.bincount(samples.y, minlength=CLASSES).float()
    shared, mine = (torch.optim.SGD(part.parameters(), lr=0.2) for part in (module, own))
    for batch in STEPS:
        x, y = samples.x[batch], samples.y[batch]
        features = body(x)
        generic = tail(features)
        shared.zero_grad()
        functional.cross_entropy(generic + counts.log(), y).backward()
        mine.zero_grad()
        functional.cross_entropy(generic.detach() + own(features.detach()), y).backward()
        shared.step()
        mine.step()

    trained = method.train(client_of(build, samples, IN_ORDER), received[None], state)
    by_hand = Network(module).weights
    head_by_hand = torch.cat([p.detach().flatten() for p in own.parameters()])
    assert_near(trained.update, by_hand - received)
    assert_near(trained.state["personal"], by_hand)
    assert_near(trained.state["head"], head_by_hand)

    module.eval()
    with torch.no_grad():
        expected = tail(body(samples.x)) + own(body(samples.x))
    assert_near(answers(method, build, trained.state, samples.x), expected)


def test_fedrod_keeps_a_head_that_starts_as_the_generic_one():
    network = Network(perceptron())
    first = methods.make("fedrod").client_init(network)
    assert torch.equal(first["personal"], network.weights)
    assert torch.equal(first["head"], network.weights[network.layout.last_layer])
    found = answers(methods.make("fedrod"), perceptron, first, torch.ones(2, INPUTS))
    assert_near(found, 2 * network.logits(network.weights.clone(), torch.ones(2, INPUTS)))


@pytest.mark.parametrize(
    ("head", "code"),
    [("clasifier", "unknown-name"), ("neck", "unsuitable-layer"), ("classifier.act", "")],
)
def test_fedrod_refuses_a_head_that_is_not_the_models_end(head: str, code: str):
    if code:
        with refused(code):
            Head(Network(Own()), head)
    else:
        assert len(Head(Network(Own()), head).weights) == 6 * CLASSES + CLASSES


def test_fedrod_runs_on_a_users_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "rod_model.py").write_text(
        "from torch import nn\n"
        "class Mine(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU())\n"
        "        self.top = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Linear(16, 10))\n"
        "    def forward(self, x):\n"
        "        return self.top(self.body(x))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings = {
        "dataset": {"name": "digits", "clients": 10, "samples": 40},
        "rounds": 2,
        "training": {"lr": 0.05, "epochs": 1},
        "workers": 1,
        "model": "rod_model:Mine",
    }
    result = fedcap.Experiment(method={"name": "fedrod", "head": "top"}, **settings).run()
    assert not result.diverged
    with refused("unknown-name"):
        fedcap.Experiment(method={"name": "fedrod", "head": "head"}, **settings).run()
