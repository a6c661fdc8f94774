"""Local training: each step is that of PyTorch's optimiser, in the order and with the batches asked for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from helpers import refused
from torch import Tensor, nn
from torch.nn import functional
from training_tools import (
    CLASSES,
    INPUTS,
    Alone,
    assert_near,
    batches_in_order,
    client_of,
    flat,
    perceptron,
    samples_of,
    seeded,
    steps_by_hand,
    tiny_data,
    tiny_runner,
    trained,
    with_batch_norm,
)

import fedcap
from fedcap import methods
from fedcap.methods.fedrod import balanced_softmax
from fedcap.runs import to_toml
from fedcap.training import SGD, Descent, Learner, Network, Task, TaskRunner, fit
from fedcap.training.sgd import optimiser_names

pytestmark = pytest.mark.usefixtures("seeded_modules")

OPTIONS: list[dict[str, Any]] = [
    {"momentum": 0.9},
    {"weight_decay": 0.1},
    {"clip": 0.3},
    {"momentum": 0.5, "weight_decay": 0.05, "clip": 0.5},
]
OPTIMISERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1, "betas": [0.8, 0.9]}),
    "adam": (torch.optim.Adam, {"amsgrad": True}),
    "rmsprop": (torch.optim.RMSprop, {"momentum": 0.9}),
    "adagrad": (torch.optim.Adagrad, {}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
}


def fitted(module: nn.Module, sgd: SGD, anchor: nn.Module | None = None, times: int = 1) -> Tensor:
    """Return the weights after training on twenty samples, pulled by 0.8 towards the anchor."""
    learner = Learner(
        Network(copy.deepcopy(module)), flat(module), None if anchor is None else flat(anchor), 0.8
    )
    for _ in range(times):
        fit([learner], samples_of(20), sgd, seeded())
    return learner.weights


def by_hand(module: nn.Module, epochs: int, anchor: nn.Module | None = None, **more: Any) -> Tensor:
    batches = batches_in_order(20, 5, epochs, True)
    pulls = [] if anchor is None else list(anchor.parameters())
    return steps_by_hand(module, batches, samples_of(20), more.pop("lr", 0.1), pulls, 0.8, **more)


def at(module: nn.Module, weights: Tensor) -> nn.Module:
    module = copy.deepcopy(module)
    nn.utils.vector_to_parameters(weights, module.parameters())
    return module


# --- Plain steps


@pytest.mark.parametrize("build", [perceptron, with_batch_norm])
@pytest.mark.parametrize(
    ("total", "size", "epochs", "drop_last"),
    [(20, 10, 5, True), (23, 10, 2, True), (23, 10, 2, False), (23, 1000, 3, True)],
)
def test_training_is_plain_sgd(build: Callable[[], nn.Module], total: int, size: int, epochs: int, drop_last):
    module, samples = build(), samples_of(total)
    sgd = SGD(lr=0.1, epochs=epochs, batch_size=size, shuffle=False, drop_last=drop_last)
    expected = steps_by_hand(module, batches_in_order(total, size, epochs, drop_last), samples, 0.1)
    assert not torch.allclose(expected, flat(module))
    assert_near(trained(module, samples, sgd), expected)


@pytest.mark.parametrize("pull", [0.0, 0.5])
def test_a_linear_model_follows_the_derivatives_written_out(pull: float):
    samples = samples_of(12)
    start, anchor = torch.randn(18, generator=seeded(1)), torch.randn(18, generator=seeded(2))
    learner = Learner(Network(nn.Linear(INPUTS, CLASSES)), start, anchor, pull)
    fit([learner], samples, SGD(lr=0.3, epochs=4, batch_size=12, shuffle=False), seeded())
    w, x = start.numpy().astype(np.float64), samples.x.numpy().astype(np.float64)
    truth = np.eye(CLASSES)[samples.y.numpy()]
    for _ in range(4):
        logits = x @ w[: CLASSES * INPUTS].reshape(CLASSES, INPUTS).T + w[CLASSES * INPUTS :]
        terms = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = terms / terms.sum(axis=1, keepdims=True) - truth
        gradient = np.concatenate([(error.T @ x).ravel(), error.sum(axis=0)]) / 12
        w = w - 0.3 * (gradient + pull * (w - anchor.numpy()))
    np.testing.assert_allclose(learner.weights.numpy(), w, rtol=1e-4, atol=1e-6)


def test_the_order_is_a_function_of_the_generator_and_a_fixed_one_draws_nothing():
    module, samples = perceptron(), samples_of(40)
    sgd = SGD(lr=0.1, epochs=2)
    assert torch.equal(trained(module, samples, sgd, seed=3), trained(module, samples, sgd, seed=3))
    assert not torch.equal(trained(module, samples, sgd, seed=3), trained(module, samples, sgd, seed=4))
    generator = seeded(3)
    before = generator.get_state()
    fit([Learner(Network(module), flat(module))], samples, SGD(shuffle=False), generator)
    assert torch.equal(generator.get_state(), before)


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


# --- Momentum, weight decay, clipping, and the optimisers of torch.optim


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_each_step_is_the_one_of_torch_in_double_precision(options: dict[str, Any]) -> None:
    start, anchor = (torch.randn(40, dtype=torch.double, generator=seeded(n)) for n in (1, 2))
    weights, theirs = start.clone(), start.clone().requires_grad_()
    steps = torch.optim.SGD([theirs], 0.1, **{name: x for name, x in options.items() if name != "clip"})
    descent = Descent(weights, anchor, 0.7)
    descent.begin(options.get("momentum", 0.0), options.get("weight_decay", 0.0), options.get("clip"))
    for number in range(30):
        slope = torch.randn(40, dtype=torch.double, generator=seeded(10 + number))
        given = slope.clone()
        descent.step(given, 0.1)
        theirs.grad = slope + 0.7 * (theirs.detach() - anchor)
        if "clip" in options:
            nn.utils.clip_grad_norm_([theirs], options["clip"])
        steps.step()
        torch.testing.assert_close(weights, theirs.detach(), rtol=1e-12, atol=1e-12)
        assert torch.equal(given, slope)
    assert not torch.allclose(weights, start)


def test_only_gradients_longer_than_the_limit_are_clipped() -> None:
    weights = torch.zeros(3, dtype=torch.double)
    descent = Descent(weights)
    descent.begin(0.0, 0.0, 5.0)
    descent.step(torch.tensor([3.0, 0.0, 0.0], dtype=torch.double), 1.0)
    assert weights.tolist() == [-3, 0, 0]
    descent.step(torch.tensor([0.0, 30.0, 40.0], dtype=torch.double), 1.0)
    torch.testing.assert_close(weights, torch.tensor([-3.0, -3.0, -4.0]).double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "torchs"),
    [
        *(({"lr": 0.1, **options}, options) for options in OPTIONS),
        *(
            (
                {"lr": 0.02, "clip": 0.3, "optimiser": {"name": name, **options}},
                {"lr": 0.02, "clip": 0.3, "optimiser": kind, **options},
            )
            for name, (kind, options) in OPTIMISERS.items()
        ),
    ],
    ids=lambda options: str(options) if "lr" in options else "",
)
@pytest.mark.parametrize("pulled", [False, True])
def test_a_learner_follows_torch_over_epochs_and_starts_from_rest_in_each_fit(
    pulled: bool, given: dict[str, Any], torchs: dict[str, Any]
) -> None:
    adaptive = "optimiser" in given  # it divides by gradients: that of a bias before a batch norm is zero
    for build in (perceptron, partial(with_batch_norm, bias=not adaptive)):
        module, anchor = build(), build() if pulled else None
        sgd = SGD(epochs=2, batch_size=5, shuffle=False, **given)
        expected = by_hand(module, 2, anchor, **torchs)
        assert_near(fitted(module, sgd, anchor), expected)
        if build is perceptron and torchs.get("optimiser") is not torch.optim.RMSprop:
            again = by_hand(at(module, expected), 2, anchor, **torchs)
            assert_near(fitted(module, sgd, anchor, times=2), again)


def test_each_learner_of_a_pair_has_its_own_momentum() -> None:
    """FedCAP and Ditto: the personal model, pulled towards the received one, and the received one."""
    received, own = perceptron(), perceptron()
    options: dict[str, Any] = {"momentum": 0.9, "clip": 0.5}
    client = client_of(perceptron, samples_of(20), SGD(0.1, 2, 5, shuffle=False, **options))
    found = methods.make("ditto", lambda_=0.8).train(client, flat(received)[None], {"personal": flat(own)})
    assert_near(found.state["personal"], by_hand(own, 2, received, **options))
    assert_near(found.update, by_hand(received, 2, **options) - flat(received))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_fedrods_personal_head_has_the_options_too(options: dict[str, Any]) -> None:
    module, samples = perceptron(), samples_of(20)
    received = flat(module)
    body, generic, personal = module[:2], module[2], nn.Linear(8, CLASSES)
    first = flat(personal)
    plain = {name: value for name, value in options.items() if name != "clip"}
    both = [torch.optim.SGD(list(part.parameters()), 0.1, **plain) for part in (module, personal)]
    for batch in batches_in_order(20, 5, 2, True):
        features = body(samples.x[batch])
        logits = generic(features)
        for steps in both:
            steps.zero_grad()
        balanced_softmax(logits, samples.y[batch], samples.y).backward()
        functional.cross_entropy(logits.detach() + personal(features.detach()), samples.y[batch]).backward()
        for part, steps in zip((module, personal), both, strict=True):
            if "clip" in options:
                nn.utils.clip_grad_norm_(part.parameters(), options["clip"])
            steps.step()
    client = client_of(perceptron, samples, SGD(0.1, 2, 5, shuffle=False, **options))
    found = methods.make("fedrod").train(client, received[None], {"personal": received, "head": first})
    assert_near(found.state["personal"], flat(module))
    assert_near(found.state["head"], flat(personal))


def test_the_learning_rate_decays_over_rounds() -> None:
    def update(sgd: SGD, number: int) -> Tensor:
        runner = tiny_runner(Alone())
        runner = TaskRunner(runner.build, runner.method, sgd, runner.seed, runner.size)
        own = {"personal": torch.zeros(18)}
        made = runner.run(Task("train", "a", number, (0,)), tiny_data()[0], torch.zeros(1, 18), own)
        assert made.update is not None
        return made.update

    for number, rate in ((1, 0.2), (2, 0.1), (4, 0.025)):
        decayed = update(SGD(0.2, 2, 5, decay=0.5), number)
        assert torch.equal(decayed, update(SGD(rate, 2, 5), number))
    assert SGD(decay=0.5).in_round(3).in_round(3) == SGD(decay=0.5).in_round(3)


def test_options_that_are_off_take_no_memory_and_leave_the_bits() -> None:
    module = perceptron()
    learner = Learner(Network(copy.deepcopy(module)), flat(module), torch.zeros(75), 0.5)
    network = Network(copy.deepcopy(module))
    samples = samples_of(20)
    for start in range(0, 20, 5):
        batch = slice(start, start + 5)
        gradient = network.cross_entropy_gradient(samples.x[batch], samples.y[batch])
        network.weights.lerp_(torch.zeros(75), 0.1 * 0.5)
        network.weights.add_(gradient, alpha=-0.1)
    fit([learner], samples, SGD(0.1, 1, 5, shuffle=False), seeded())
    assert torch.equal(learner.weights, network.weights)
    held = [value for value in vars(learner._descent).values() if isinstance(value, Tensor)]
    assert [tensor.data_ptr() for tensor in held][:1] == [learner.weights.data_ptr()]
    assert len(held) == 2  # the weights and the anchor: views of what there was


@pytest.mark.parametrize("name", optimiser_names())
def test_every_optimiser_takes_finite_steps(name: str) -> None:
    module = perceptron()
    table = None if name == "sgd" else {"name": name}
    weights = fitted(module, SGD(0.01, 1, 5, optimiser=table))
    assert weights.isfinite().all()
    assert not torch.equal(weights, flat(module))


def test_a_run_with_an_optimiser_learns_faster_and_is_repeated_to_the_bit() -> None:
    given: dict[str, Any] = {"dataset": {"name": "digits", "samples": 60, "clients": 5}, "rounds": 3}
    training = {"lr": 0.003, "epochs": 3, "optimiser": "adamw"}
    first, again, plain = (
        fedcap.Experiment(**given, workers=1, training=training | {"optimiser": name}).run()
        for name in ("adamw", "adamw", "sgd")
    )
    assert first.tacc == again.tacc
    assert first.tacc > plain.tacc + 10


# --- Settings


@pytest.mark.parametrize(
    "training",
    [
        {"lr": 0.0},
        {"lr": float("nan")},
        {"epochs": 0},
        {"epochs": 1.5},
        {"batch_size": 0},
        {"momentum": 1},
        {"momentum": -0.1},
        {"weight_decay": -1},
        {"clip": 0},
        {"decay": 0},
        {"decay": 1.1},
        {"optimiser": "adamm"},
        {"optimiser": "lbfgs"},
        {"optimiser": {"name": "adam", "beta": 1}},
        {"optimiser": {"name": "adam", "eps": -1}},
        {"optimiser": {"name": "adam", "lr": 1}},
        {"optimiser": "adam", "momentum": 0.9},
        {"optimiser": 3},
    ],
    ids=str,
)
def test_invalid_training_options_are_errors_that_name_the_option(training: dict[str, Any]) -> None:
    with refused("bad-value") as error:
        fedcap.Experiment(training=training)
    assert str(error.value.field).startswith("training")
    assert next(iter(training)) in str(error.value)


def test_options_are_settings_and_part_of_what_a_run_is() -> None:
    plain = fedcap.Experiment()
    for given in ({"momentum": 0.9}, {"weight_decay": 0.01}, {"clip": 1.0}, {"decay": 0.99}):
        experiment = fedcap.Experiment(training=given)
        assert experiment.settings()["training"].items() >= given.items()
        assert experiment.digest() != plain.digest()
    assert plain.settings()["training"].items() >= {"momentum": 0.0, "decay": 1.0}.items()
    assert "optimiser" not in plain.settings()["training"]
    assert fedcap.Experiment(training={"optimiser": "SGD"}).digest() == plain.digest()
    adam = fedcap.Experiment(training={"optimiser": "Adam"})
    assert adam.digest() != plain.digest()
    assert 'name = "adam"' in to_toml(adam.settings())
    assert fedcap.Experiment(**adam.settings()).settings() == adam.settings()
