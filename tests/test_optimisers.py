"""Optimisers of torch.optim for local training: each step is PyTorch's, and no state outlives a round."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from helpers import refused
from torch import Tensor, nn
from torch.nn import functional
from training_tools import (
    assert_near,
    batches_in_order,
    flat,
    perceptron,
    samples_of,
    seeded,
)

import fedcap
from fedcap.runs import to_toml
from fedcap.training import SGD, Learner, Network, fit
from fedcap.training.sgd import optimiser_names

pytestmark = pytest.mark.usefixtures("seeded_modules")

TABLES: dict[str, dict[str, Any]] = {
    "adamw": {"weight_decay": 0.1, "betas": [0.8, 0.9]},
    "adam": {"amsgrad": True},
    "rmsprop": {"momentum": 0.9},
    "adagrad": {},
    "sgd": {"momentum": 0.9, "nesterov": True},
}
CLASSES = {"adamw": "AdamW", "adam": "Adam", "rmsprop": "RMSprop", "adagrad": "Adagrad", "sgd": "SGD"}


def oracle(
    module: nn.Module, name: str, anchor: nn.Module | None = None, clip: float | None = None
) -> Tensor:
    """Plain PyTorch: a copy of the module with the optimiser over its parameters, three epochs."""
    module, samples = copy.deepcopy(module).train(), samples_of(20)
    steps = getattr(torch.optim, CLASSES[name])(list(module.parameters()), lr=0.02, **TABLES[name])
    for batch in batches_in_order(20, 5, 3, True):
        steps.zero_grad()
        loss = functional.cross_entropy(module(samples.x[batch]), samples.y[batch])
        if anchor is not None:
            pairs = zip(module.parameters(), anchor.parameters(), strict=True)
            loss = loss + 0.8 / 2 * sum(((p - a.detach()) ** 2).sum() for p, a in pairs)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        steps.step()
    return flat(module)


def settings(name: str, **more: Any) -> SGD:
    return SGD(0.02, 3, 5, shuffle=False, optimiser={"name": name, **TABLES[name]}, **more)


@pytest.mark.parametrize("name", TABLES)
def test_a_learner_follows_the_optimiser_of_torch(name: str) -> None:
    module = perceptron()
    learner = Learner(Network(copy.deepcopy(module)), flat(module))
    fit([learner], samples_of(20), settings(name), seeded())
    assert_near(learner.weights, oracle(module, name))


@pytest.mark.parametrize("name", TABLES)
def test_the_pull_and_the_clipping_are_part_of_the_gradient(name: str) -> None:
    module, anchor = perceptron(), perceptron()
    learner = Learner(Network(copy.deepcopy(module)), flat(module), flat(anchor), 0.8)
    fit([learner], samples_of(20), settings(name, clip=0.3), seeded())
    assert_near(learner.weights, oracle(module, name, anchor, 0.3))


def test_the_state_starts_from_nothing_in_each_round() -> None:
    module = perceptron()
    learner = Learner(Network(copy.deepcopy(module)), flat(module))
    for _ in range(2):
        fit([learner], samples_of(20), settings("adamw"), seeded())
    between = copy.deepcopy(module)
    nn.utils.vector_to_parameters(oracle(module, "adamw"), between.parameters())
    assert_near(learner.weights, oracle(between, "adamw"))


@pytest.mark.parametrize("method", ["fedcap", "ditto", "fedavg", "fedrod"])
def test_runs_learn_with_an_optimiser_and_are_repeated_to_the_bit(method: str) -> None:
    given: dict[str, Any] = {"dataset": {"name": "digits", "samples": 60, "clients": 5}, "method": method}
    training = {"lr": 0.003, "epochs": 3, "optimiser": "adamw"}
    first, again = (
        fedcap.Experiment(**given, rounds=3, workers=1, training=training).run() for _ in range(2)
    )
    plain = fedcap.Experiment(**given, rounds=3, workers=1, training=training | {"optimiser": "sgd"}).run()
    assert first.tacc == again.tacc
    assert first.tacc > plain.tacc + 10


@pytest.mark.parametrize("name", optimiser_names())
def test_every_optimiser_takes_finite_steps(name: str) -> None:
    module = perceptron()
    learner = Learner(Network(copy.deepcopy(module)), flat(module))
    table = None if name == "sgd" else {"name": name}
    fit([learner], samples_of(20), SGD(0.01, 1, 5, optimiser=table), seeded())
    assert learner.weights.isfinite().all()
    assert not torch.equal(learner.weights, flat(module))


def test_plain_sgd_and_the_default_are_the_same_run() -> None:
    default = fedcap.Experiment()
    assert "optimiser" not in default.settings()["training"]
    assert fedcap.Experiment(training={"optimiser": "SGD"}).digest() == default.digest()
    adam = fedcap.Experiment(training={"optimiser": "Adam"})
    assert adam.digest() != default.digest()
    assert 'name = "adam"' in to_toml(adam.settings())
    assert fedcap.Experiment(**adam.settings()).settings() == adam.settings()


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"optimiser": "adamm"}, "unknown optimiser 'adamm': did you mean 'adam'"),
        ({"optimiser": "lbfgs"}, "unknown optimiser 'lbfgs'"),
        ({"optimiser": {"name": "adam", "beta": 1}}, "optimiser adam refuses its options"),
        ({"optimiser": {"name": "adam", "eps": -1}}, "optimiser adam refuses its options"),
        ({"optimiser": {"name": "adam", "lr": 1}}, "the learning rate is training.lr"),
        ({"optimiser": "adam", "momentum": 0.9}, "momentum and weight_decay are options of SGD"),
        ({"optimiser": 3}, "must be a name, or a table"),
    ],
)
def test_a_mistake_is_one_line(training: dict[str, Any], said: str) -> None:
    with refused("bad-value") as error:
        fedcap.Experiment(training=training)
    assert said in str(error.value)
