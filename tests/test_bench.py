"""One client's job: what it makes, what it tests, and that nothing but its own arguments decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

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

from fedcap.rng import derived_seed
from fedcap.state import Tensors
from fedcap.training import (
    SGD,
    Layout,
    Learner,
    LocalData,
    Network,
    Task,
    TaskRunner,
    Trainer,
    Work,
    fit,
    single_thread,
)


@pytest.fixture(autouse=True)
def _single_thread() -> Iterator[None]:
    with single_thread():
        yield


DATA = LocalData(samples_of(14, seed=1), samples_of(9, seed=101))


def runner_of(build: Callable[[], nn.Module], trainer: Trainer = Pair(), **options) -> TaskRunner:  # noqa: B008
    sgd = SGD(lr=0.1, epochs=2, batch_size=5, **options)
    return TaskRunner(build, trainer, sgd, seed=11, size=Layout.of(build()).size)


def weights_of(bench: TaskRunner) -> tuple[Tensor, Tensors]:
    """A model to receive, 1×D, and what the client keeps."""
    return initial_weights(bench.build, 1)[None], {"personal": initial_weights(bench.build, 51)}


def performed(bench: TaskRunner, job: Task, data: LocalData = DATA) -> tuple[Tensor, Tensor]:
    """What a client sends, and its personal model."""
    work = bench.run(job, data, *weights_of(bench))
    nothing = torch.zeros(0)
    return (
        nothing if work.update is None else work.update.clone(),
        nothing if work.kept is None else work.kept["personal"].clone(),
    )


def test_a_job_hands_over_what_the_trainer_sends_and_keeps():
    bench = runner_of(perceptron, shuffle=False)
    received, kept = weights_of(bench)
    client = client_of(perceptron, DATA.train, bench.sgd)
    expected = bench.trainer.train(client, received, kept)
    update, personal = performed(bench, Task("train", "1", 3))
    assert_near(update, expected.update)
    assert_near(personal, expected.kept["personal"])
    request = bench.trainer.request(client, received[0])
    assert_near(performed(bench, Task("request", "1", 3))[0], request)


def test_only_training_makes_something_to_keep_and_evaluation_makes_nothing():
    bench = runner_of(perceptron)
    requested = bench.run(Task("request", "1", 3), DATA, *weights_of(bench))
    assert requested.update is not None
    assert requested.kept is None
    tested = bench.run(Task("evaluate", "1", 3, evaluate=True), DATA, *weights_of(bench))
    assert (tested.update, tested.kept) == (None, None)


def test_a_job_leaves_what_it_was_given_as_it_was():
    bench = runner_of(with_batch_norm)
    received, kept = weights_of(bench)
    before = received.clone(), kept["personal"].clone()
    bench.run(Task("train", "1", 3, evaluate=True), DATA, received, kept)
    assert torch.equal(received, before[0])
    assert torch.equal(kept["personal"], before[1])


@pytest.mark.parametrize("client", ["3", "hospital-a"])
def test_the_order_of_samples_is_drawn_for_the_kind_the_round_and_the_client(client: str):
    bench = runner_of(perceptron, Alone())
    received, _ = weights_of(bench)
    update, _ = performed(bench, Task("train", client, 7))
    known_as = 3 if client == "3" else client  # runs whose clients had numbers draw as they did
    generator = torch.Generator().manual_seed(derived_seed(11, "train", 7, known_as))
    learner = Learner(Network(perceptron()), received[0])
    fit([learner], DATA.train, bench.sgd, generator)
    assert torch.equal(update, learner.weights - received[0])


def test_every_client_round_and_kind_draws_for_itself():
    bench = runner_of(perceptron, Alone())
    jobs = [Task("train", "0", 1), Task("train", "1", 1), Task("train", "0", 2), Task("request", "0", 1)]
    assert len({tuple(performed(bench, job)[0].tolist()) for job in jobs}) == 4


ARCHITECTURES = {
    "plain": perceptron,
    "batch norm": with_batch_norm,
    "cumulative batch norm": partial(with_batch_norm, momentum=None),
    "dropout": with_dropout,
}


@pytest.mark.parametrize("build", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_a_job_done_again_has_the_same_result(build: Callable[[], nn.Module]):
    bench, job = runner_of(build), Task("train", "1", 3, evaluate=True)
    first, again = performed(bench, job), performed(bench, job)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])


@pytest.mark.parametrize("build", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_a_result_does_not_depend_on_the_jobs_before(build: Callable[[], nn.Module]):
    job = Task("train", "1", 3)
    expected = performed(runner_of(build), job)
    bench = runner_of(build)
    other = LocalData(samples_of(17, seed=5), samples_of(8, seed=6))
    for before in (
        Task("request", "2", 3),
        Task("evaluate", "0", 3, evaluate=True),
        Task("train", "3", 2, evaluate=True),
    ):
        performed(bench, before, other)
    found = performed(bench, job)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("build", [perceptron, with_dropout])
def test_jobs_leave_the_global_random_state_alone_and_do_not_look_at_it(build: Callable[[], nn.Module]):
    bench, job = runner_of(build), Task("train", "1", 3)
    before = torch.get_rng_state()
    first = performed(bench, job)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(77)
        again = performed(bench, job)
    assert torch.equal(first[0], again[0])


def correct(weights: Tensor) -> int:
    """Test samples that a linear model of these weights classifies correctly, one by one."""
    matrix, bias = weights[:15].view(CLASSES, INPUTS).numpy(), weights[15:].numpy()
    pairs = zip(DATA.test.x.numpy(), DATA.test.y.numpy(), strict=True)
    return sum(int(np.argmax(matrix @ x + bias) == y) for x, y in pairs)


def hits(work: Work) -> tuple[int | None, int | None]:
    return work.performed.received_correct, work.performed.personal_correct


def test_evaluation_counts_the_test_samples_classified_correctly():
    bench = runner_of(linear, Alone())
    received, kept = weights_of(bench)
    before, own = correct(received[0]), correct(kept["personal"])
    perform = partial(bench.perform, data=DATA, received=received, kept=kept)
    assert before != own
    assert hits(perform(Task("evaluate", "2", 1, evaluate=True))) == (before, own)
    assert hits(perform(Task("evaluate", "2", 1, evaluate=True, has_personal=False))) == (before, None)
    work = perform(Task("train", "2", 1, evaluate=True))
    assert hits(work) == (before, correct(work.kept["personal"]))
    assert hits(perform(Task("train", "2", 1))) == (None, None)


def test_a_client_that_received_nothing_is_tested_with_its_own_model_alone():
    bench = runner_of(linear, Alone())
    received, kept = weights_of(bench)
    work = bench.run(Task("evaluate", "2", 1, evaluate=True), DATA, received[:0], kept)
    assert hits(work) == (None, correct(kept["personal"]))


def test_tests_do_not_touch_models_that_are_still_in_their_networks():
    bench = runner_of(perceptron, Collector(), shuffle=False)
    received, kept = weights_of(bench)
    kept = {**kept, "other": torch.zeros(bench.size), "matrix": torch.ones(2, 3)}
    work = bench.run(Task("train", "0", 1, evaluate=True), DATA, received, kept)
    expected = []
    for start in (received[0], kept["personal"]):
        learner = Learner(Network(module_at(perceptron, start)), start)
        fit([learner], DATA.train, bench.sgd, torch.Generator())
        expected.append(learner.weights)
    assert torch.equal(work.kept["other"], expected[0])
    assert torch.equal(work.kept["personal"], expected[1])
    assert torch.equal(work.kept["matrix"], torch.full((2, 3), 2.0))
    assert work.performed.extra == (0.5, 14.0)


@pytest.mark.parametrize("broken", ["received", "kept"])
def test_a_model_that_diverged_is_told(broken: str):
    bench = runner_of(perceptron)
    received, kept = weights_of(bench)
    assert bench.run(Task("train", "0", 1), DATA, received, kept).performed.finite
    (received[0] if broken == "received" else kept["personal"])[0] = torch.nan
    assert not bench.run(Task("train", "0", 1), DATA, received, kept).performed.finite


def test_a_trainer_that_keeps_something_else_is_an_error_that_says_what():
    bench = runner_of(linear, Forgetful())
    with pytest.raises(ValueError, match=r"'personal': \(18,\).*\(got .*'souvenir': \(18,\)"):
        bench.run(Task("train", "0", 1), DATA, *weights_of(bench))


def test_an_update_of_another_length_is_an_error():
    bench = runner_of(linear, Brief())
    with pytest.raises(ValueError, match=r"\(18,\) \(got \(1,\)\)"):
        bench.run(Task("train", "0", 1), DATA, *weights_of(bench))


def test_seconds_are_told_by_what_they_were_spent_on():
    bench = runner_of(perceptron, Sleepy(0.2))
    trained = bench.run(Task("train", "0", 1, evaluate=True), DATA, *weights_of(bench)).performed
    assert trained.seconds_training > 0.2 > trained.seconds_evaluating > 0
    tested = bench.run(Task("evaluate", "0", 1, evaluate=True), DATA, *weights_of(bench)).performed
    assert tested.seconds_evaluating > tested.seconds_training


def test_benches_with_the_same_settings_are_equal_whatever_they_have_done():
    bench = runner_of(perceptron)
    performed(bench, Task("train", "0", 1))
    assert bench == replace(bench)
