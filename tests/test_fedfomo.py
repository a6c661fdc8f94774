"""FedFomo: its clients' weights and mixtures, and its server's choices, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import IN_ORDER, end_round, perceptron
from torch import Tensor, nn
from torch.nn import functional
from training_tools import assert_near, client_of, samples_of

import fedcap
from fedcap import methods
from fedcap.detection import Batch
from fedcap.methods import fedfomo
from fedcap.methods.fedfomo import fomo_weights, mix
from fedcap.server.uploads import Upload, validate
from fedcap.simulation import Simulation, make_pool
from fedcap.state import Samples
from fedcap.training import Layout, LocalData, Network, Task, TaskRunner


def test_fomo_weights_are_loss_saved_per_distance():
    found = fomo_weights(torch.tensor(2.0), torch.tensor([1.0, 3.0, 2.0]), torch.tensor([4.0, 0.5, 9.0]))
    assert found.tolist() == [0.25, -2.0, 0.0]
    own = torch.tensor(2.0)
    assert fomo_weights(own, torch.tensor([2.0, math.nan, math.inf]), torch.zeros(3)).tolist() == [0, -1, -1]
    assert fomo_weights(own, torch.tensor([math.nan]), torch.tensor([math.inf])).tolist() == [-1]


def test_the_mixture_moves_towards_models_that_help_by_their_shares():
    own, models = torch.tensor([1.0, 1.0]), torch.tensor([[3.0, 1.0], [1.0, 5.0], [90.0, 90.0]])
    found = mix(own, models, torch.tensor([1.0, 3.0, -5.0]))
    assert found.tolist() == [1 + 0.25 * 2, 1 + 0.75 * 4]
    assert mix(own, models, torch.tensor([0.0, -1.0, -5.0])) is own


def test_a_fomo_client_weighs_on_the_last_fifth_and_trains_on_the_rest():
    samples = samples_of(15)
    own, *others = (Network(perceptron()).weights.clone() for _ in range(4))
    received = torch.stack(others)
    method = methods.make("fedfomo")

    def loss(weights: Tensor) -> float:
        module = Network(perceptron())
        module.weights.copy_(weights)
        with torch.no_grad():
            return float(functional.cross_entropy(module.module(samples.x[12:]), samples.y[12:]))

    weights = [(loss(own) - loss(other)) / float((other - own).norm()) for other in others]
    positive = [max(weight, 0) for weight in weights]
    mixed = own + sum(p / (sum(positive) or 1) * (o - own) for p, o in zip(positive, others, strict=True))
    shared = method.received_model(client_of(perceptron, samples, IN_ORDER), received, {"personal": own})
    assert_near(shared, mixed)

    trained = method.train(client_of(perceptron, samples, IN_ORDER), received, {"personal": own})
    assert_near(trained.feedback, torch.tensor(weights))
    client = client_of(perceptron, Samples(samples.x[:12], samples.y[:12]), IN_ORDER)
    learner = client.learner(mixed)
    client.fit(learner)
    assert_near(trained.state["personal"], learner.weights)
    assert_near(trained.update, learner.weights - own)


def fomo_batch(ids: list[int], updates: Tensor, feedback: Tensor) -> Batch:
    return Batch(torch.tensor(ids), updates, torch.ones(len(ids)), feedback=feedback)


def test_the_fomo_server_stores_models_and_sends_the_preferred_ones():
    method = methods.make("fedfomo", models=2, explore=0.0)
    layout = Layout.of(nn.Linear(1, 1))
    state = method.init(torch.tensor([10.0, 10.0]), layout)
    ids = torch.tensor([0, 2, 3, 5])
    sent = method.send(state, ids, {})
    assert sent.index.tolist() == [[0]] * 4
    assert sent.models.tolist() == [[10, 10]]
    changes = torch.tensor([[1.0, 0], [2, 0], [3, 0], [math.nan, 0]])
    found = end_round(method, state, fomo_batch([0, 2, 3, 5], changes, torch.zeros(4, 1)), sent=sent)
    state = found.state
    assert found.uncounted == {5}
    assert state.ids.tolist() == [0, 2, 3]
    assert state.models.tolist() == [[11, 10], [12, 10], [13, 10]]
    assert not state.preferences.any()

    ids = torch.tensor([0, 3, 7])
    sent = method.send(state, ids, {})
    assert [sorted(rows) for rows in sent.index.tolist()[:2]] == [[1, 2], [0, 1]]
    assert len(set(sent.index.tolist()[2])) == 2
    feedback = torch.tensor([[0.5, -1.0], [2.0, 1.0], [4.0, 3.0]])
    state = end_round(method, state, fomo_batch([0, 3, 7], torch.ones(3, 2), feedback), sent=sent).state
    assert state.ids.tolist() == [0, 2, 3, 7]
    assert state.models.tolist() == [[12, 11], [12, 10], [14, 11], [11, 11]]
    expected = torch.zeros(4, 4)
    for row, rows, liked in zip((0, 2, 3), sent.index.tolist(), feedback.tolist(), strict=True):
        for column, value in zip(rows, liked, strict=True):
            expected[row, column] += value
    assert torch.equal(state.preferences, expected)
    best = max((row for row in range(4) if row != 0), key=lambda row: float(expected[0, row]))
    assert method.send(state, torch.tensor([0]), {}).index[0, 0] == best


def test_models_are_weighed_once_per_task_also_when_they_are_tested(monkeypatch: pytest.MonkeyPatch):
    calls = []

    def counted(*arguments: Tensor) -> Tensor:
        calls.append(arguments)
        return fomo_weights(*arguments)

    monkeypatch.setattr(fedfomo, "fomo_weights", counted)
    own, *received = (Network(perceptron()).weights.clone() for _ in range(3))
    runner = TaskRunner(perceptron, methods.make("fedfomo"), IN_ORDER, seed=0, size=len(own))
    data = LocalData(samples_of(15), samples_of(9))
    for evaluate in (False, True):
        task = Task("train", "a", 2, (0, 1), evaluate=evaluate)
        result = runner.run(task, data, torch.stack(received), {"personal": own})
        assert (result.received_correct is not None) == evaluate
    assert len(calls) == 2


def test_fedfomos_bytes_are_several_models_down_and_one_up():
    data = {"name": "digits", "clients": 10, "samples": 40}
    method = {"name": "fedfomo", "models": 3}
    experiment = fedcap.Experiment(method=method, dataset=data, rounds=2, training={"epochs": 1})
    simulation = Simulation(experiment, make_pool(1))
    weights = simulation.layout.size
    assert simulation.play().bytes == 4 * 10 * (2 * weights + 1)
    assert simulation.play().bytes == 4 * 10 * (4 * weights + 3)


@pytest.mark.parametrize(
    "feedback", [None, torch.zeros(2), torch.zeros(3, dtype=torch.long), [1.0, 2.0, 3.0]]
)
def test_an_upload_without_valid_feedback_is_rejected(feedback: object):
    good = Upload("a", 1, torch.ones(4), 5, torch.zeros(3))
    valid = validate(
        [good, Upload("b", 1, torch.ones(4), 5, feedback)], 1, {"a": 0, "b": 1}, size=4, feedback=3
    )
    assert valid.batch.ids.tolist() == [0]
    assert valid.batch.feedback.tolist() == [[0, 0, 0]]
    assert "3 finite numbers" in valid.rejected["b"]


def test_the_model_of_a_removed_client_is_not_sent_again():
    method = methods.make("fedfomo", models=2, detectors="norm")
    state = method.init(torch.zeros(2), Layout.of(nn.Linear(1, 1)))
    first = end_round(method, state, fomo_batch([0, 1, 2], torch.ones(3, 2), torch.zeros(3, 1))).state
    rows = torch.ones(3, 2)
    rows[1] = 100
    found = end_round(method, first, fomo_batch([0, 1, 2], rows, torch.ones(3, 2)))
    assert list(found.verdict.removed) == [1]
    assert found.state.ids.tolist() == [0, 2]
    assert found.state.models.tolist() == [[2, 2], [2, 2]]
    assert found.state.preferences.tolist() == [[0, 1], [1, 0]]
