"""One client's task: its results, its tests, and that they depend on its arguments alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from training_tools import (
    CLASSES,
    INPUTS,
    Alone,
    Brief,
    Collector,
    Forgetful,
    Pair,
    Sleepy,
    assert_near,
    client_of,
    initial_weights,
    linear,
    module_at,
    perceptron,
    samples_of,
    with_batch_norm,
    with_dropout,
)

from fedcap.methods.base import Method
from fedcap.rng import derived_seed
from fedcap.state import Tensors
from fedcap.training import (
    SGD,
    Layout,
    Learner,
    LocalData,
    Network,
    Task,
    TaskResult,
    TaskRunner,
    fit,
    single_thread,
)


@pytest.fixture(autouse=True)
def _single_thread() -> Iterator[None]:
    with single_thread():
        yield


DATA = LocalData(samples_of(14, seed=1), samples_of(9, seed=101))


def runner_of(build: Callable[[], nn.Module], method: Method[Any] = Pair(), **options) -> TaskRunner:  # noqa: B008
    sgd = SGD(lr=0.1, epochs=2, batch_size=5, **options)
    return TaskRunner(build, method, sgd, seed=11, size=Layout.of(build()).size)


def weights_of(runner: TaskRunner) -> tuple[Tensor, Tensors]:
    """A model to receive, 1×D, and what the client keeps."""
    return initial_weights(runner.build, 1)[None], {"personal": initial_weights(runner.build, 51)}


def performed(runner: TaskRunner, task: Task, data: LocalData = DATA) -> tuple[Tensor, Tensor]:
    """What a client sends, and its personal model."""
    result = runner.run(task, data, *weights_of(runner))
    nothing = torch.zeros(0)
    return (
        nothing if result.update is None else result.update.clone(),
        nothing if result.state is None else result.state["personal"].clone(),
    )


def test_a_task_returns_what_the_method_trains():
    runner = runner_of(perceptron, shuffle=False)
    received, own = weights_of(runner)
    client = client_of(perceptron, DATA.train, runner.sgd)
    expected = runner.method.train(client, received, own)
    update, personal = performed(runner, Task("train", "1", 3))
    assert_near(update, expected.update)
    assert_near(personal, expected.state["personal"])
    learner = client_of(perceptron, DATA.train, runner.sgd).learner(received[0])
    client.fit(learner)
    assert_near(performed(runner, Task("request", "1", 3))[0], learner.weights - received[0])


def test_only_training_returns_a_state_and_evaluation_returns_no_tensors():
    runner = runner_of(perceptron)
    requested = runner.run(Task("request", "1", 3), DATA, *weights_of(runner))
    assert requested.update is not None
    assert requested.state is None
    tested = runner.run(Task("evaluate", "1", 3, evaluate=True), DATA, *weights_of(runner))
    assert (tested.update, tested.state) == (None, None)


def test_a_task_changes_neither_the_received_models_nor_the_state():
    runner = runner_of(with_batch_norm)
    received, own = weights_of(runner)
    before = received.clone(), own["personal"].clone()
    runner.run(Task("train", "1", 3, evaluate=True), DATA, received, own)
    assert torch.equal(received, before[0])
    assert torch.equal(own["personal"], before[1])


@pytest.mark.parametrize("client", ["3", "hospital-a"])
def test_the_order_of_samples_depends_on_kind_round_and_client(client: str):
    runner = runner_of(perceptron, Alone())
    received, _ = weights_of(runner)
    update, _ = performed(runner, Task("train", client, 7))
    known_as = 3 if client == "3" else client  # runs whose clients had numbers draw as they did
    generator = torch.Generator().manual_seed(derived_seed(11, "train", 7, known_as))
    learner = Learner(Network(perceptron()), received[0])
    fit([learner], DATA.train, runner.sgd, generator)
    assert torch.equal(update, learner.weights - received[0])


def test_different_tasks_draw_different_numbers():
    runner = runner_of(perceptron, Alone())
    tasks = [Task("train", "0", 1), Task("train", "1", 1), Task("train", "0", 2), Task("request", "0", 1)]
    assert len({tuple(performed(runner, task)[0].tolist()) for task in tasks}) == 4


ARCHITECTURES = {
    "plain": perceptron,
    "batch norm": with_batch_norm,
    "cumulative batch norm": partial(with_batch_norm, momentum=None),
    "dropout": with_dropout,
}


@pytest.mark.parametrize("build", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_a_result_does_not_depend_on_earlier_tasks(build: Callable[[], nn.Module]):
    task = Task("train", "1", 3)
    expected = performed(runner_of(build), task)
    runner = runner_of(build)
    other = LocalData(samples_of(17, seed=5), samples_of(8, seed=6))
    for before in (
        Task("request", "2", 3),
        Task("evaluate", "0", 3, evaluate=True),
        Task("train", "3", 2, evaluate=True),
    ):
        performed(runner, before, other)
    found = performed(runner, task)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("build", [perceptron, with_dropout])
def test_tasks_neither_use_nor_change_the_global_random_state(build: Callable[[], nn.Module]):
    runner, task = runner_of(build), Task("train", "1", 3)
    before = torch.get_rng_state()
    first = performed(runner, task)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(77)
        again = performed(runner, task)
    assert torch.equal(first[0], again[0])


def correct(weights: Tensor) -> int:
    """Test samples that a linear model of these weights classifies correctly, one by one."""
    matrix, bias = weights[:15].view(CLASSES, INPUTS).numpy(), weights[15:].numpy()
    pairs = zip(DATA.test.x.numpy(), DATA.test.y.numpy(), strict=True)
    return sum(int(np.argmax(matrix @ x + bias) == y) for x, y in pairs)


def hits(result: TaskResult) -> tuple[int | None, int | None]:
    return result.received_correct, result.personal_correct


def test_evaluation_counts_the_test_samples_classified_correctly():
    runner = runner_of(linear, Alone())
    received, own = weights_of(runner)
    before, after = correct(received[0]), correct(own["personal"])
    perform = partial(runner.run, data=DATA, received=received, own=own)
    assert before != after
    assert hits(perform(Task("evaluate", "2", 1, evaluate=True))) == (before, after)
    assert hits(perform(Task("evaluate", "2", 1, evaluate=True, has_personal=False))) == (before, None)
    result = perform(Task("train", "2", 1, evaluate=True))
    assert hits(result) == (before, correct(result.state["personal"]))
    assert hits(perform(Task("train", "2", 1))) == (None, None)


def test_a_client_that_received_no_model_is_tested_with_its_own_only():
    runner = runner_of(linear, Alone())
    received, own = weights_of(runner)
    result = runner.run(Task("evaluate", "2", 1, evaluate=True), DATA, received[:0], own)
    assert hits(result) == (None, correct(own["personal"]))


def test_evaluation_does_not_change_the_trained_models():
    runner = runner_of(perceptron, Collector(), shuffle=False)
    received, own = weights_of(runner)
    own = {**own, "other": torch.zeros(runner.size), "matrix": torch.ones(2, 3)}
    result = runner.run(Task("train", "0", 1, evaluate=True), DATA, received, own)
    expected = []
    for start in (received[0], own["personal"]):
        learner = Learner(Network(module_at(perceptron, start)), start)
        fit([learner], DATA.train, runner.sgd, torch.Generator())
        expected.append(learner.weights)
    assert torch.equal(result.state["other"], expected[0])
    assert torch.equal(result.state["personal"], expected[1])
    assert torch.equal(result.state["matrix"], torch.full((2, 3), 2.0))
    assert result.feedback == (0.5, 14.0)


@pytest.mark.parametrize("broken", ["received", "own"])
def test_a_model_that_is_not_finite_is_reported(broken: str):
    runner = runner_of(perceptron)
    received, own = weights_of(runner)
    assert runner.run(Task("train", "0", 1), DATA, received, own).is_finite
    (received[0] if broken == "received" else own["personal"])[0] = torch.nan
    assert not runner.run(Task("train", "0", 1), DATA, received, own).is_finite


def test_a_changed_shape_of_the_state_is_an_error():
    runner = runner_of(linear, Forgetful())
    with pytest.raises(ValueError, match=r"'personal': \(18,\).*\(got .*'souvenir': \(18,\)"):
        runner.run(Task("train", "0", 1), DATA, *weights_of(runner))


def test_an_update_of_another_length_is_an_error():
    runner = runner_of(linear, Brief())
    with pytest.raises(ValueError, match=r"\(18,\) \(got \(1,\)\)"):
        runner.run(Task("train", "0", 1), DATA, *weights_of(runner))


def test_seconds_are_split_into_training_and_evaluation():
    runner = runner_of(perceptron, Sleepy(seconds=0.2))
    trained = runner.run(Task("train", "0", 1, evaluate=True), DATA, *weights_of(runner))
    assert trained.seconds_training > 0.2 > trained.seconds_evaluating > 0
    tested = runner.run(Task("evaluate", "0", 1, evaluate=True), DATA, *weights_of(runner))
    assert tested.seconds_evaluating > tested.seconds_training


def test_runners_with_the_same_settings_are_equal():
    runner = runner_of(perceptron)
    performed(runner, Task("train", "0", 1))
    assert runner == replace(runner)
