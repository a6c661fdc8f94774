"""What clients of each method do in a round: against plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from training_tools import (
    CLASSES,
    INPUTS,
    assert_near,
    batches_in_order,
    client_of,
    flat,
    initial_weights,
    module_at,
    perceptron,
    samples_of,
    steps_by_hand,
    trained,
    with_batch_norm,
)

from fedcap.methods import make
from fedcap.training import SGD, LocalData, Network, Task, TaskRunner

pytestmark = pytest.mark.usefixtures("seeded_modules")


@pytest.mark.parametrize("build", [perceptron, with_batch_norm])
@pytest.mark.parametrize("lambda_", [0.0, 0.1, 2.0])
def test_fedcap_trains_the_pulled_personal_and_the_plain_shared_model(
    build: Callable[[], nn.Module], lambda_: float
):
    samples = samples_of(25)
    sgd = SGD(lr=0.1, epochs=3, batch_size=10, shuffle=False)
    received, personal = initial_weights(build, 1), initial_weights(build, 2)
    before = received.clone(), personal.clone()
    outcome = make("fedcap", lambda_=lambda_).train(
        client_of(build, samples, sgd), received[None], {"personal": personal}
    )
    frozen = list(module_at(build, received).parameters())
    batches = batches_in_order(25, 10, 3, drop_last=True)
    v = steps_by_hand(module_at(build, personal), batches, samples, 0.1, frozen, lambda_)
    w = steps_by_hand(module_at(build, received), batches, samples, 0.1)
    assert_near(outcome.state["personal"], v)
    assert_near(outcome.update, w - received)
    assert torch.equal(received, before[0])
    assert torch.equal(personal, before[1])


def test_a_hardened_client_does_not_keep_what_training_made_worse():
    samples, start = samples_of(25), initial_weights(perceptron, 1)
    own = {"personal": start, "least": torch.tensor([torch.inf])}
    wild, calm = (
        make("fedcap", preset="hardened").train(
            client_of(perceptron, samples, SGD(lr=lr, epochs=3, batch_size=10)), start[None], own
        )
        for lr in (1e4, 0.01)
    )
    assert torch.equal(wild.state["personal"], start)
    assert not torch.equal(calm.state["personal"], start)


def test_a_hardened_client_that_never_had_a_finite_loss_has_a_finite_state():
    """The loss of a model with huge biases overflows; its gradient, and so the update, does not."""
    method, network = make("fedcap", preset="hardened"), Network(perceptron())
    own = {name: tensor.clone() for name, tensor in method.client_init(network).items()}
    received = network.weights.clone()
    network.layout.slots[-1].of(received).copy_(torch.tensor([3e38, -3e38, 3e38]))
    client = client_of(perceptron, samples_of(25), SGD(lr=0.01, epochs=1, batch_size=10))
    outcome = method.train(client, received[None], own)
    assert outcome.update.isfinite().all()
    assert all(tensor.isfinite().all() for tensor in outcome.state.values())
    assert torch.equal(outcome.state["least"], own["least"])


def test_both_of_the_pair_see_the_same_mini_batches():
    samples, sgd = samples_of(40), SGD(lr=0.1, epochs=2, batch_size=5)
    start = initial_weights(perceptron, 1)
    outcome = make("fedcap", lambda_=0.0).train(
        client_of(perceptron, samples, sgd), start[None], {"personal": start}
    )
    assert torch.equal(outcome.state["personal"] - start, outcome.update)


def test_of_the_pair_the_personal_model_steps_first():
    class Recorded(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append((self, x.shape[0]))
            return super().forward(x)

    seen: list[tuple[nn.Module, int]] = []
    samples, sgd = samples_of(9), SGD(epochs=1, batch_size=5, drop_last=False)
    start, personal = torch.zeros(18), torch.ones(18)
    client = client_of(partial(Recorded, INPUTS, CLASSES), samples, sgd)
    outcome = make("fedcap").train(client, start[None], {"personal": personal})
    assert [size for _, size in seen] == [5, 5, 4, 4]
    first, second = seen[0][0], seen[1][0]
    assert [module for module, _ in seen] == [first, second, first, second]
    assert torch.equal(flat(first), outcome.state["personal"])
    assert torch.equal(flat(second), outcome.update + start)


def test_without_personalisation_the_shared_model_is_kept():
    samples, sgd = samples_of(20), SGD(lr=0.1, epochs=1, shuffle=False)
    received, personal = initial_weights(perceptron, 1), initial_weights(perceptron, 2)
    for method in (make("fedcap", personalise=False), make("fedavg")):
        outcome = method.train(client_of(perceptron, samples, sgd), received[None], {"personal": personal})
        expected = trained(module_at(perceptron, received), samples, sgd)
        assert_near(outcome.state["personal"], expected)
        assert_near(outcome.update, expected - received)


def test_local_trains_on_from_the_personal_model():
    samples, sgd = samples_of(20), SGD(lr=0.1, epochs=1, shuffle=False)
    personal = initial_weights(perceptron, 2)
    nothing = torch.empty(0, len(personal))
    outcome = make("local").train(client_of(perceptron, samples, sgd), nothing, {"personal": personal})
    assert_near(outcome.state["personal"], trained(module_at(perceptron, personal), samples, sgd))


def test_a_request_is_an_update_trained_from_the_start_given():
    samples, sgd = samples_of(20), SGD(lr=0.1, epochs=1, shuffle=False)
    start = initial_weights(perceptron, 2)
    runner = TaskRunner(perceptron, make("fedcap"), sgd, 0, len(start))
    result = runner.run(Task("request", "a", 1), LocalData(samples, samples), start[None], {})
    assert_near(result.update, trained(module_at(perceptron, start), samples, sgd) - start)
