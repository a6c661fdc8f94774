"""Local training against plain PyTorch and NumPy; layouts; and the pools that train many clients."""

from __future__ import annotations

import copy
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from fedcap.training.pool import Pool, SerialPool, WorkerError, WorkerPool, single_thread
from torch import Tensor, nn
from torch.nn import functional

from fedcap.methods import make
from fedcap.models import builder
from fedcap.samples import Samples
from fedcap.training import SGD, Bench, Job, Layout, Learner, LocalClient, Network, fit, fresh_network

INPUTS, CLASSES = 5, 3


@pytest.fixture(autouse=True)
def _seeded_modules() -> Iterator[None]:
    with torch.random.fork_rng(), single_thread():
        torch.manual_seed(0)
        yield


def samples_of(number: int, seed: int = 0) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(number, INPUTS, generator=generator)
    return Samples(x, torch.randint(CLASSES, (number,), generator=generator))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def with_batch_norm(momentum: float | None = 0.1) -> nn.Module:
    return nn.Sequential(
        nn.Linear(INPUTS, 8), nn.BatchNorm1d(8, momentum=momentum), nn.ReLU(), nn.Linear(8, CLASSES)
    )


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, CLASSES))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def initial_weights(build: Callable[[], nn.Module], seed: int) -> Tensor:
    return fresh_network(build, seed).weights


def flat(module: nn.Module) -> Tensor:
    """All weights by the documented order: what learns, what is frozen, then the buffers."""
    parameters = list(module.parameters())
    parts = [p for p in parameters if p.requires_grad] + [p for p in parameters if not p.requires_grad]
    parts += [b for b in module.buffers() if b.is_floating_point()]
    return torch.cat([part.detach().flatten() for part in parts]).clone()


def steps_by_hand(
    module: nn.Module, batches: list[Tensor], samples: Samples, lr: float, anchor: list[Tensor], pull: float
) -> Tensor:
    """Plain PyTorch: a copy of the module, its own optimiser, the loss written out."""
    module = copy.deepcopy(module).train()
    optimiser = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=lr)
    for batch in batches:
        optimiser.zero_grad()
        loss = functional.cross_entropy(module(samples.x[batch]), samples.y[batch])
        trained = [p for p in module.parameters() if p.requires_grad]
        for p, a in zip(trained, anchor, strict=bool(anchor)):
            loss = loss + pull / 2 * ((p - a) ** 2).sum()
        loss.backward()
        optimiser.step()
    return flat(module)


def batches_in_order(total: int, size: int, epochs: int, drop_last: bool) -> list[Tensor]:
    one = [torch.arange(start, min(start + size, total)) for start in range(0, total, size)]
    if drop_last and len(one) > 1 and len(one[-1]) < size:
        one.pop()
    return one * epochs


def trained(module: nn.Module, samples: Samples, sgd: SGD, seed: int = 0) -> Tensor:
    learner = Learner(Network(copy.deepcopy(module)), flat(module))
    fit([learner], samples, sgd, seeded(seed))
    return learner.weights.clone()


def assert_near(found: Tensor, expected: Tensor):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


# --- One learner


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


def test_every_epoch_shuffles_anew_and_no_sample_comes_twice_in_it():
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


def test_a_client_with_fewer_samples_than_a_batch_still_trains():
    module, samples = perceptron(), samples_of(3)
    expected = steps_by_hand(module, [torch.arange(3)] * 2, samples, 0.1, anchor=[], pull=0)
    assert_near(trained(module, samples, SGD(lr=0.1, epochs=2, shuffle=False)), expected)


# --- FedCAP's pair, and the other methods' steps


def client_of(build: Callable[[], nn.Module], samples: Samples, sgd: SGD) -> LocalClient:
    return LocalClient(samples, sgd, seeded(), (Network(build()) for _ in count()))


def module_at(build: Callable[[], nn.Module], weights: Tensor) -> nn.Module:
    network = Network(build())
    network.weights.copy_(weights)
    return network.module


@pytest.mark.parametrize("build", [perceptron, with_batch_norm])
@pytest.mark.parametrize("lambda_", [0.0, 0.1, 2.0])
def test_fedcap_trains_the_pulled_personal_and_the_plain_shared_model(
    build: Callable[[], nn.Module], lambda_: float
):
    samples = samples_of(25)
    sgd = SGD(lr=0.1, epochs=3, batch_size=10, shuffle=False)
    received, personal = initial_weights(build, 1), initial_weights(build, 2)
    before = received.clone(), personal.clone()
    outcome = make("fedcap", lambda_=lambda_).train(client_of(build, samples, sgd), received[None], personal)
    frozen = list(module_at(build, received).parameters())
    batches = batches_in_order(25, 10, 3, drop_last=True)
    v = steps_by_hand(module_at(build, personal), batches, samples, 0.1, frozen, lambda_)
    w = steps_by_hand(module_at(build, received), batches, samples, 0.1, [], 0)
    assert_near(outcome.personal, v)
    assert_near(outcome.update, w - received)
    assert torch.equal(received, before[0])
    assert torch.equal(personal, before[1])


def test_both_of_the_pair_see_the_same_mini_batches():
    samples, sgd = samples_of(40), SGD(lr=0.1, epochs=2, batch_size=5)
    start = initial_weights(perceptron, 1)
    outcome = make("fedcap", lambda_=0.0).train(client_of(perceptron, samples, sgd), start[None], start)
    assert torch.equal(outcome.personal - start, outcome.update)


def test_of_the_pair_the_personal_model_steps_first():
    class Recorded(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append((self, x.shape[0]))
            return super().forward(x)

    seen: list[tuple[nn.Module, int]] = []
    samples, sgd = samples_of(9), SGD(epochs=1, batch_size=5, drop_last=False)
    start, personal = torch.zeros(18), torch.ones(18)
    client = client_of(partial(Recorded, INPUTS, CLASSES), samples, sgd)
    outcome = make("fedcap").train(client, start[None], personal)
    assert [size for _, size in seen] == [5, 5, 4, 4]
    first, second = seen[0][0], seen[1][0]
    assert [module for module, _ in seen] == [first, second, first, second]
    assert torch.equal(flat(first), outcome.personal)
    assert torch.equal(flat(second), outcome.update + start)


def test_without_personalisation_the_shared_model_is_kept():
    samples, sgd = samples_of(20), SGD(lr=0.1, epochs=1, shuffle=False)
    received, personal = initial_weights(perceptron, 1), initial_weights(perceptron, 2)
    for method in (make("fedcap", personalise=False), make("fedavg")):
        outcome = method.train(client_of(perceptron, samples, sgd), received[None], personal)
        expected = trained(module_at(perceptron, received), samples, sgd)
        assert_near(outcome.personal, expected)
        assert_near(outcome.update, expected - received)


def test_local_trains_on_from_the_personal_model():
    samples, sgd = samples_of(20), SGD(lr=0.1, epochs=1, shuffle=False)
    personal = initial_weights(perceptron, 2)
    nothing = torch.empty(0, len(personal))
    outcome = make("local").train(client_of(perceptron, samples, sgd), nothing, personal)
    assert_near(outcome.personal, trained(module_at(perceptron, personal), samples, sgd))


def test_a_request_is_an_update_trained_from_the_start_given():
    samples, sgd = samples_of(20), SGD(lr=0.1, epochs=1, shuffle=False)
    start = initial_weights(perceptron, 2)
    request = make("fedcap").request(client_of(perceptron, samples, sgd), start)
    assert_near(request, trained(module_at(perceptron, start), samples, sgd) - start)


# --- Layouts and networks


class Tied(nn.Module):
    """Two layers that share one matrix, and a head."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(INPUTS, INPUTS)
        self.second = nn.Linear(INPUTS, INPUTS)
        self.second.weight = self.first.weight
        self.head = nn.Linear(INPUTS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def with_frozen_body() -> nn.Module:
    module = perceptron()
    module[0].weight.requires_grad_(False)
    module[0].bias.requires_grad_(False)
    return module


def test_the_layout_gives_every_tensor_its_place_without_gaps():
    layout = Layout.of(perceptron())
    assert [(slot.name, slot.start, slot.stop) for slot in layout.slots] == [
        ("0.weight", 0, 40),
        ("0.bias", 40, 48),
        ("2.weight", 48, 72),
        ("2.bias", 72, 75),
    ]
    assert [tuple(slot.shape) for slot in layout.slots] == [(8, 5), (8,), (3, 8), (3,)]
    assert layout.size == layout.trainable == 75
    assert layout.last_layer == slice(48, 75)


def test_the_last_layer_of_a_single_layer_is_all_of_it():
    assert Layout.of(nn.Linear(INPUTS, CLASSES)).last_layer == slice(0, 18)


def test_frozen_parameters_come_after_those_that_learn():
    layout = Layout.of(with_frozen_body())
    assert [slot.name for slot in layout.slots] == ["2.weight", "2.bias", "0.weight", "0.bias"]
    assert (layout.trainable, layout.size) == (27, 75)
    assert layout.last_layer == slice(0, 27)


def test_running_statistics_come_last_and_the_count_of_batches_is_no_weight():
    layout = Layout.of(with_batch_norm())
    assert [slot.name for slot in layout.slots][-2:] == ["1.running_mean", "1.running_var"]
    assert layout.size - layout.trainable == 16
    assert layout.last_layer == slice(layout.trainable - 27, layout.trainable)


def test_tied_weights_are_one_place_in_the_vector():
    layout = Layout.of(Tied())
    assert [slot.name for slot in layout.slots].count("first.weight") == 1
    assert "second.weight" not in [slot.name for slot in layout.slots]
    assert layout.size == sum(p.numel() for p in Tied().parameters())
    module, samples = Tied(), samples_of(20)
    expected = steps_by_hand(module, batches_in_order(20, 10, 2, True), samples, 0.1, [], 0)
    assert_near(trained(module, samples, SGD(lr=0.1, epochs=2, shuffle=False)), expected)


@pytest.mark.parametrize("pull", [0.0, 3.0])
def test_frozen_parameters_are_moved_neither_by_gradient_nor_by_pull(pull: float):
    start = flat(with_frozen_body())
    learner = Learner(Network(with_frozen_body()), start, start + 1, pull)
    fit([learner], samples_of(20), SGD(lr=0.1), seeded())
    assert torch.equal(learner.weights[27:], start[27:])
    assert not torch.equal(learner.weights[:27], start[:27])


def test_running_statistics_follow_the_samples_and_not_the_pull():
    start, samples = initial_weights(with_batch_norm, 0), samples_of(10)
    trainable = Layout.of(with_batch_norm()).trainable
    learner = Learner(Network(with_batch_norm()), start, start + 100, 3.0)
    fit([learner], samples, SGD(lr=0.01, epochs=1, batch_size=10, shuffle=False), seeded())
    hidden = module_at(with_batch_norm, start)[0](samples.x).detach().double().numpy()
    mean = 0.1 * hidden.mean(axis=0)
    variance = 0.9 + 0.1 * hidden.var(axis=0, ddof=1)
    found = learner.weights[trainable:].numpy()
    np.testing.assert_allclose(found, np.concatenate([mean, variance]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("build", [perceptron, with_batch_norm, with_frozen_body, Tied])
def test_weights_go_into_a_network_and_come_out_the_same(build: Callable[[], nn.Module]):
    module = build()
    expected, x = flat(module), samples_of(6).x
    outputs = copy.deepcopy(module).eval()(x).detach()
    assert torch.equal(Network(copy.deepcopy(module)).weights, expected)
    network = Network(build())
    torch.testing.assert_close(network.logits(expected, x), outputs)
    assert torch.equal(network.weights, expected)
    assert torch.equal(flat(network.module), expected)
    named = {**dict(network.module.named_parameters()), **dict(network.module.named_buffers())}
    for slot in network.layout.slots:
        part = expected[slot.start : slot.stop].view(slot.shape)
        assert torch.equal(named[slot.name].detach(), part)


def test_a_module_without_weights_to_train_is_refused():
    with pytest.raises(ValueError, match="ReLU has no weights to train"):
        Network(nn.ReLU())


def test_a_fresh_network_is_a_function_of_the_seed():
    with torch.random.fork_rng():
        torch.manual_seed(5)
        expected = flat(perceptron())
    assert torch.equal(initial_weights(perceptron, 5), expected)
    assert torch.equal(initial_weights(perceptron, 5), expected)
    assert not torch.equal(initial_weights(perceptron, 6), expected)


def test_a_fresh_network_leaves_the_global_random_state_alone():
    before = torch.get_rng_state()
    fresh_network(perceptron, 5)
    assert torch.equal(torch.get_rng_state(), before)


# --- One client's job


def bench_of(build: Callable[[], nn.Module], clients: int = 4, trainer: object = None, **options) -> Bench:
    return Bench(
        build=build,
        trainer=make("fedcap") if trainer is None else trainer,
        sgd=SGD(lr=0.1, epochs=2, batch_size=5),
        seed=11,
        train=[samples_of(13 + k, seed=k) for k in range(clients)],
        test=[samples_of(9, seed=100 + k) for k in range(clients)],
        size=Layout.of(build()).size,
        **options,
    )


def weights_of(bench: Bench) -> tuple[Tensor, Tensor]:
    """Some models to receive, and every client's personal one."""
    models = torch.stack([initial_weights(bench.build, seed) for seed in range(2)])
    personal = torch.stack([initial_weights(bench.build, 50 + k) for k in range(len(bench.train))])
    return models, personal


def performed(bench: Bench, job: Job) -> tuple[Tensor, Tensor]:
    models, personal = weights_of(bench)
    update, kept = torch.zeros(2, bench.size)
    bench.perform(job, models, personal[job.client], update, kept)
    return update, kept


def test_a_job_hands_over_what_the_method_sends_and_keeps():
    bench = bench_of(perceptron)
    bench.sgd = SGD(lr=0.1, epochs=2, batch_size=5, shuffle=False)
    models, personal = weights_of(bench)
    client = client_of(perceptron, bench.train[1], bench.sgd)
    expected = bench.trainer.train(client, models[:1], personal[1])
    update, kept = performed(bench, Job("train", 1, 3, (0,)))
    assert_near(update, expected.update)
    assert_near(kept, expected.personal)
    request = bench.trainer.request(client, models[1])
    assert_near(performed(bench, Job("request", 1, 3, (1,)))[0], request)


ARCHITECTURES = {
    "plain": perceptron,
    "batch norm": with_batch_norm,
    "cumulative batch norm": partial(with_batch_norm, momentum=None),
    "dropout": with_dropout,
}


@pytest.mark.parametrize("build", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_a_job_done_again_has_the_same_result(build: Callable[[], nn.Module]):
    bench, job = bench_of(build), Job("train", 1, 3, (0,), evaluate=True)
    first, again = performed(bench, job), performed(bench, job)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])


@pytest.mark.parametrize("build", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_a_result_does_not_depend_on_the_jobs_before(build: Callable[[], nn.Module]):
    job = Job("train", 1, 3, (0,))
    expected = performed(bench_of(build), job)
    bench = bench_of(build)
    for before in (Job("request", 2, 3, (1,)), Job("evaluate", 0, 3, (1,), True), Job("train", 3, 2, (1,))):
        performed(bench, before)
    found = performed(bench, job)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("build", [perceptron, with_dropout])
def test_jobs_leave_the_global_random_state_alone_and_do_not_look_at_it(build: Callable[[], nn.Module]):
    job = Job("train", 1, 3, (0,))
    bench = bench_of(build)
    performed(bench, job)
    before = torch.get_rng_state()
    first = performed(bench, job)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(77)
        again = performed(bench, job)
    assert torch.equal(first[0], again[0])


def test_every_client_round_and_kind_draws_for_itself():
    bench = bench_of(perceptron)
    # The same samples and models everywhere: only the order drawn can make a difference.
    bench.train = [bench.train[3]] * 4
    models, personal = weights_of(bench)
    bench.trainer = make("fedavg")
    found = set()
    for job in (
        Job("train", 0, 1, (0,)),
        Job("train", 1, 1, (0,)),
        Job("train", 0, 2, (0,)),
        Job("request", 0, 1, (0,)),
    ):
        update, kept = torch.zeros(2, bench.size)
        bench.perform(job, models, personal[0], update, kept)
        found.add(tuple(update.tolist()))
    assert len(found) == 4


def test_evaluation_counts_the_test_samples_classified_correctly():
    bench = bench_of(partial(nn.Linear, INPUTS, CLASSES), trainer=make("fedavg"))
    models, personal = weights_of(bench)

    def correct(weights: Tensor) -> int:
        matrix, bias = weights[:15].view(CLASSES, INPUTS).numpy(), weights[15:].numpy()
        test = bench.test[2]
        return sum(
            int(np.argmax(matrix @ x + bias) == y) for x, y in zip(test.x.numpy(), test.y, strict=True)
        )

    update, kept = torch.zeros(2, bench.size)
    done = bench.perform(Job("evaluate", 2, 1, (1,), True), models, personal[2], update, kept)
    assert (done.shared_correct, done.personal_correct) == (correct(models[1]), correct(personal[2]))
    done = bench.perform(Job("train", 2, 1, (1,), True), models, personal[2], update, kept)
    assert (done.shared_correct, done.personal_correct) == (correct(models[1]), correct(kept))
    done = bench.perform(Job("train", 2, 1, (1,)), models, personal[2], update, kept)
    assert (done.shared_correct, done.personal_correct) == (None, None)


def test_a_model_that_diverged_is_told():
    bench = bench_of(perceptron)
    models, personal = weights_of(bench)
    update, kept = torch.zeros(2, bench.size)
    assert bench.perform(Job("train", 0, 1, (0,)), models, personal[0], update, kept).finite
    models[0, 0] = torch.nan
    assert not bench.perform(Job("train", 0, 1, (0,)), models, personal[0], update, kept).finite


# --- Many clients' jobs

TROUBLED = """
import os
import signal
from dataclasses import dataclass

from fedcap.methods.fedcap import FedCAP


@dataclass(frozen=True)
class DiesOnce(FedCAP):
    marker: str = ""

    def train(self, client, received, personal):
        trained = super().train(client, received, personal)
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return trained
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class DiesAtTwelve(FedCAP):
    def train(self, client, received, personal):
        if len(client.samples) == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train(client, received, personal)


@dataclass(frozen=True)
class RaisesAtTwelve(FedCAP):
    def train(self, client, received, personal):
        if len(client.samples) == 12:
            raise ArithmeticError("the abacus broke")
        return super().train(client, received, personal)
"""


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A module of trainers in trouble, where worker processes can import it too."""
    folder = str(tmp_path_factory.mktemp("trainers"))
    Path(folder, "fedcap_troubled_trainers.py").write_text(TROUBLED)
    sys.path.insert(0, folder)
    yield importlib.import_module("fedcap_troubled_trainers")
    sys.path.remove(folder)
    del sys.modules["fedcap_troubled_trainers"]


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerPool]:
    with WorkerPool(2) as pool:
        yield pool


def images(number: int, seed: int) -> Samples:
    generator = seeded(seed)
    x = torch.rand(number, 1, 8, 8, generator=generator) * 2 - 1
    return Samples(x, torch.randint(10, (number,), generator=generator))


def federation(trainer: object = None) -> Bench:
    """Six clients with the network for digits; client k has 10 + k samples to train on."""
    build = builder("cnn-digits", (1, 8, 8), 10)
    return Bench(
        build=build,
        trainer=make("fedcap") if trainer is None else trainer,
        sgd=SGD(lr=0.05, epochs=2, batch_size=5),
        seed=4,
        train=[images(10 + k, k) for k in range(6)],
        test=[images(8, 100 + k) for k in range(6)],
        size=Layout.of(build()).size,
    )


JOBS = [
    *(Job("train", k, 1, (k % 2,), evaluate=True) for k in range(5)),
    Job("request", 5, 1, (0,)),
    Job("evaluate", 5, 1, (1,), evaluate=True),
]


def outcome(pool: Pool, bench: Bench, jobs: list[Job] = JOBS, opened: bool = False):
    """The bits that came of the jobs, and the counts."""
    if not opened:
        pool.open(bench)
    found = pool.run(jobs, *weights_of(bench))
    hits = [(done.shared_correct, done.personal_correct, done.finite) for done in found.performed]
    return found.updates.clone(), found.kept.clone(), hits


def assert_same(found, expected):
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert found[2] == expected[2]


def children() -> set[int]:
    """Processes started by this one, as the kernel sees them."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(stat.parent.name))
    return found


@pytest.fixture(scope="module")
def serial():
    """What the jobs come to when done in this process."""
    return outcome(SerialPool(), federation())


def test_serial_results_do_not_depend_on_the_order_of_the_jobs(serial):
    found = outcome(SerialPool(), federation(), JOBS[::-1])
    assert_same((found[0].flip(0), found[1].flip(0), found[2][::-1]), serial)


def test_workers_compute_the_same_bits_as_this_process(workers: WorkerPool, serial):
    assert_same(outcome(workers, federation()), serial)
    assert_same(outcome(workers, federation(), opened=True), serial)


def test_workers_serve_smaller_and_larger_batches_and_other_benches(workers: WorkerPool, serial):
    few = outcome(workers, federation(), JOBS[:2])
    assert_same(few, (serial[0][:2], serial[1][:2], serial[2][:2]))
    linear = bench_of(partial(nn.Linear, INPUTS, CLASSES))
    jobs = [Job("train", k, 2, (1,)) for k in range(4)]
    assert_same(outcome(workers, linear, jobs), outcome(SerialPool(), linear, jobs))
    assert_same(outcome(workers, federation()), serial)


def test_a_worker_killed_in_the_middle_of_a_job_is_replaced(
    workers: WorkerPool, troubled, tmp_path: Path, serial
):
    marker = tmp_path / "died"
    assert_same(outcome(workers, federation(troubled.DiesOnce(marker=str(marker)))), serial)
    assert marker.exists()


def test_a_trainer_that_raises_is_an_error_that_names_the_client(workers: WorkerPool, troubled, serial):
    workers.open(federation(troubled.RaisesAtTwelve()))
    before = children()
    with pytest.raises(WorkerError, match=r"client 2: (.|\n)*the abacus broke"):
        outcome(workers, federation(troubled.RaisesAtTwelve()), opened=True)
    assert len(children()) == len(before) - 2
    assert_same(outcome(workers, federation()), serial)


def test_a_worker_killed_between_two_batches_is_replaced(workers: WorkerPool, serial):
    assert_same(outcome(workers, federation()), serial)
    victim = max(children())
    os.kill(victim, signal.SIGKILL)
    assert_same(outcome(workers, federation(), opened=True), serial)
    assert victim not in children()


def test_a_job_that_kills_every_worker_is_given_up_with_the_clients_name(workers: WorkerPool, troubled):
    with pytest.raises(WorkerError, match="client 2"):
        outcome(workers, federation(troubled.DiesAtTwelve()))


def test_closing_a_pool_leaves_no_process_behind():
    before = children()
    with WorkerPool(3) as pool:
        pool.open(federation())
        assert len(children() - before) == 3
    assert children() == before


def test_a_pool_without_workers_does_not_pretend_to_have_worked():
    bench = federation()
    with pytest.raises(RuntimeError):
        WorkerPool(2).run(JOBS, *weights_of(bench))
