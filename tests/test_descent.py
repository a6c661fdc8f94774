"""Momentum, weight decay, clipping and learning-rate decay: each step is that of PyTorch's optimiser."""

from __future__ import annotations

import copy

import pytest
import torch
from helpers import refused
from torch import Tensor, nn
from torch.nn import functional
from training_tools import (
    CLASSES,
    Alone,
    assert_near,
    batches_in_order,
    client_of,
    flat,
    perceptron,
    samples_of,
    seeded,
    tiny_data,
    tiny_runner,
    with_batch_norm,
)

import fedcap
from fedcap import methods
from fedcap.methods.fedrod import balanced_softmax
from fedcap.training import SGD, Descent, Learner, Network, Task, TaskRunner, fit

OPTIONS = [
    {"momentum": 0.9},
    {"weight_decay": 0.1},
    {"clip": 0.3},
    {"momentum": 0.5, "weight_decay": 0.05, "clip": 0.5},
]


pytestmark = pytest.mark.usefixtures("seeded_modules")


def optimiser(parameters: list[Tensor], lr: float, options: dict[str, float]) -> torch.optim.SGD:
    plain = {key: value for key, value in options.items() if key != "clip"}
    return torch.optim.SGD(parameters, lr=lr, **plain)


def oracle(
    module: nn.Module,
    batches: list[Tensor],
    lr: float,
    options: dict[str, float],
    anchor: nn.Module | None = None,
    pull: float = 0.0,
) -> Tensor:
    """Plain PyTorch: a copy of the module, its own optimiser, and the loss written out."""
    module, samples = copy.deepcopy(module).train(), samples_of(20)
    steps = optimiser(list(module.parameters()), lr, options)
    for batch in batches:
        steps.zero_grad()
        loss = functional.cross_entropy(module(samples.x[batch]), samples.y[batch])
        if anchor is not None:
            pairs = zip(module.parameters(), anchor.parameters(), strict=True)
            loss = loss + pull / 2 * sum(((p - a.detach()) ** 2).sum() for p, a in pairs)
        loss.backward()
        if "clip" in options:
            nn.utils.clip_grad_norm_(module.parameters(), options["clip"])
        steps.step()
    return flat(module)


def test_each_step_is_the_one_of_torch_in_double_precision() -> None:
    for options in OPTIONS:
        start, anchor = (torch.randn(40, dtype=torch.double, generator=seeded(n)) for n in (1, 2))
        weights, theirs = start.clone(), start.clone().requires_grad_()
        steps = optimiser([theirs], 0.1, options)
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


def test_a_gradient_shorter_than_the_limit_is_left_as_it_is() -> None:
    weights = torch.zeros(3, dtype=torch.double)
    descent = Descent(weights)
    descent.begin(0.0, 0.0, 5.0)
    descent.step(torch.tensor([3.0, 0.0, 0.0], dtype=torch.double), 1.0)
    assert weights.tolist() == [-3, 0, 0]
    descent.step(torch.tensor([0.0, 30.0, 40.0], dtype=torch.double), 1.0)
    torch.testing.assert_close(weights, torch.tensor([-3.0, -3.0, -4.0]).double(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("build", [perceptron, with_batch_norm])
def test_a_learner_follows_torch_over_epochs(build, options: dict[str, float]) -> None:
    module, batches = build(), batches_in_order(20, 5, 3, True)
    expected = oracle(module, batches, 0.1, options)
    learner = Learner(Network(copy.deepcopy(module)), flat(module))
    fit([learner], samples_of(20), SGD(0.1, 3, 5, shuffle=False, **options), seeded())
    assert_near(learner.weights, expected)
    assert not torch.allclose(expected, oracle(module, batches, 0.1, {}), atol=1e-3)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_pull_towards_an_anchor_is_part_of_the_gradient(options: dict[str, float]) -> None:
    """So it is clipped with it, and momentum carries it on, as if it stood in the loss."""
    module, anchor = perceptron(), perceptron()
    expected = oracle(module, batches_in_order(20, 5, 3, True), 0.1, options, anchor, 0.8)
    learner = Learner(Network(copy.deepcopy(module)), flat(module), flat(anchor), 0.8)
    fit([learner], samples_of(20), SGD(0.1, 3, 5, shuffle=False, **options), seeded())
    assert_near(learner.weights, expected)


def test_momentum_starts_from_rest_in_each_fit() -> None:
    module, sgd = perceptron(), SGD(0.1, 1, 5, shuffle=False, momentum=0.9)
    learner = Learner(Network(copy.deepcopy(module)), flat(module))
    batches = batches_in_order(20, 5, 1, True)
    for _ in range(2):
        fit([learner], samples_of(20), sgd, seeded())
    middle = copy.deepcopy(module)
    halfway = oracle(module, batches, 0.1, {"momentum": 0.9})
    nn.utils.vector_to_parameters(halfway, middle.parameters())
    assert_near(learner.weights, oracle(middle, batches, 0.1, {"momentum": 0.9}))


def test_each_learner_of_a_pair_has_its_own_momentum() -> None:
    """FedCAP and Ditto: the personal model pulled towards the one received, and that one beside it."""
    received, own = perceptron(), perceptron()
    options, batches = {"momentum": 0.9, "clip": 0.5}, batches_in_order(20, 5, 2, True)
    client = client_of(perceptron, samples_of(20), SGD(0.1, 2, 5, shuffle=False, **options))
    trained = methods.make("ditto", lambda_=0.8).train(client, flat(received)[None], {"personal": flat(own)})
    assert_near(trained.state["personal"], oracle(own, batches, 0.1, options, received, 0.8))
    assert_near(trained.update, oracle(received, batches, 0.1, options) - flat(received))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_fedrods_personal_head_has_the_options_too(options: dict[str, float]) -> None:
    module, samples = perceptron(), samples_of(20)
    received = flat(module)
    body, generic, personal = module[:2], module[2], nn.Linear(8, CLASSES)
    first = flat(personal)
    both = [optimiser(list(part.parameters()), 0.1, options) for part in (module, personal)]
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
    trained = methods.make("fedrod").train(client, received[None], {"personal": received, "head": first})
    assert_near(trained.state["personal"], flat(module))
    assert_near(trained.state["head"], flat(personal))


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 0.0),
        ("lr", float("nan")),
        ("epochs", 0),
        ("epochs", 1.5),
        ("batch_size", 0),
        ("momentum", 1),
        ("momentum", -0.1),
        ("weight_decay", -1),
        ("clip", 0),
        ("decay", 0),
        ("decay", 1.1),
    ],
)
def test_invalid_training_options_are_errors_that_name_the_option(name: str, value: float) -> None:
    with refused("bad-value"):
        fedcap.Experiment(training={name: value})


def test_options_are_settings_and_part_of_what_a_run_is() -> None:
    plain = fedcap.Experiment()
    for given in ({"momentum": 0.9}, {"weight_decay": 0.01}, {"clip": 1.0}, {"decay": 0.99}):
        experiment = fedcap.Experiment(training=given)
        assert experiment.settings()["training"].items() >= given.items()
        assert experiment.digest() != plain.digest()
    assert plain.settings()["training"].items() >= {"momentum": 0.0, "decay": 1.0}.items()
