"""The methods FedCAP is compared with: each one's formula by hand, and every one in the one loop."""

from __future__ import annotations

import copy
import json
import math
from collections import OrderedDict
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedcap
from fedcap import methods
from fedcap.aggregators import make as make_rule
from fedcap.data import federate
from fedcap.data import make as make_data
from fedcap.data.dealing import _root as root_set
from fedcap.data.partitions import make as make_partition
from fedcap.methods.base import Uploads
from fedcap.methods.fedavg import combine
from fedcap.methods.fedfomo import fomo_weights, mix
from fedcap.methods.fedrod import Head, balanced_softmax
from fedcap.methods.fltrust import trusted_step
from fedcap.methods.intake import Upload, admit
from fedcap.registry import InputError
from fedcap.samples import Samples
from fedcap.simulation.directory import CHECKPOINT, RESULT
from fedcap.simulation.loop import Simulation
from fedcap.simulation.record import Result, RoundRecord
from fedcap.training import SGD, Layout, LocalClient, Network
from fedcap.training.pool import Pool, SerialPool, make_pool

INPUTS, CLASSES = 5, 3
RIVALS = {
    "fedavg": {"rule": "geometric-median"},
    "ditto": {"rule": {"name": "bucketing", "rule": "multi-krum"}},
    "fedrod": {},
    "fedfomo": {"models": 4},
    "fltrust": {},
}
QUICK = {
    "dataset": {"name": "digits", "clients": 10, "samples": 40},
    "rounds": 2,
    "training": {"lr": 0.05, "epochs": 1},
    "workers": 1,
}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with make_pool(2) as workers:
        yield workers


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, CLASSES))


class Own(nn.Module):
    """A user's network, whose layers are attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(INPUTS, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.neck = nn.Linear(8, 8)
        self.classifier = nn.Sequential(
            OrderedDict(hidden=nn.Linear(8, 6), act=nn.ReLU(), out=nn.Linear(6, CLASSES))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.tanh(self.neck(self.body(x))))


def samples_of(number: int, seed: int = 0) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(number, INPUTS, generator=generator)
    return Samples(x, torch.randint(CLASSES, (number,), generator=generator))


def client_of(build: object, samples: Samples, sgd: SGD) -> LocalClient:
    generator = torch.Generator().manual_seed(0)
    return LocalClient(samples, sgd, generator, (Network(build()) for _ in count()))


def near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


IN_ORDER = SGD(lr=0.2, epochs=2, batch_size=4, shuffle=False)
STEPS = [slice(0, 4), slice(4, 8), slice(8, 12)] * 2


# --- Ditto


def test_dittos_clients_train_fedcaps_pair():
    samples, sgd = samples_of(12), SGD(lr=0.1, epochs=2, batch_size=4)
    received, personal = (Network(perceptron()).weights.clone() for _ in range(2))
    ditto, ours = (
        methods.make(name, lambda_=0.7).train(client_of(perceptron, samples, sgd), received[None], personal)
        for name in ("ditto", "fedcap")
    )
    assert torch.equal(ditto.update, ours.update)
    assert torch.equal(ditto.personal, ours.personal)
    assert not torch.equal(ditto.personal, personal)


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
    first = method.first_personal(network)
    personal = torch.cat([torch.zeros_like(received), first[len(received) :] + 0.1])

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

    trained = method.train(client_of(build, samples, IN_ORDER), received[None], personal)
    by_hand = Network(module).weights
    head_by_hand = torch.cat([p.detach().flatten() for p in own.parameters()])
    near(trained.update, by_hand - received)
    near(trained.personal, torch.cat([by_hand, head_by_hand]))

    module.eval()
    with torch.no_grad():
        expected = tail(body(samples.x)) + own(body(samples.x))
    near(method.personal_logits(Network(build()), trained.personal, samples.x), expected)


def test_fedrod_keeps_a_head_that_starts_as_the_generic_one():
    network = Network(perceptron())
    first = methods.make("fedrod").first_personal(network)
    assert torch.equal(first, torch.cat([network.weights, network.weights[network.layout.last_layer]]))
    answers = methods.make("fedrod").personal_logits(Network(perceptron()), first, torch.ones(2, INPUTS))
    near(answers, 2 * network.logits(network.weights.clone(), torch.ones(2, INPUTS)))


@pytest.mark.parametrize(
    ("head", "said"),
    [("clasifier", "did you mean 'classifier'"), ("neck", "not the model's end"), ("classifier.act", "")],
)
def test_fedrod_refuses_a_head_that_is_not_the_models_end(head: str, said: str):
    if said:
        with pytest.raises(InputError, match=said):
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
    settings = {**QUICK, "model": "rod_model:Mine"}
    result = fedcap.Experiment(method={"name": "fedrod", "head": "top"}, **settings).run()
    assert not result.diverged
    with pytest.raises(InputError, match="the model has no layer 'head'"):
        fedcap.Experiment(method={"name": "fedrod", "head": "head"}, **settings).run()


# --- FedFomo


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
    shared = method.shared(client_of(perceptron, samples, IN_ORDER), received, own)
    near(shared, mixed)

    trained = method.train(client_of(perceptron, samples, IN_ORDER), received, own)
    near(trained.extra, torch.tensor(weights))
    client = client_of(perceptron, Samples(samples.x[:12], samples.y[:12]), IN_ORDER)
    learner = client.learner(mixed)
    client.fit(learner)
    near(trained.personal, learner.weights)
    near(trained.update, learner.weights - own)


def fomo_uploads(ids: list[int], updates: Tensor, extra: Tensor) -> Uploads:
    return Uploads(torch.tensor(ids), updates, torch.ones(len(ids)), extra=extra)


def test_the_fomo_server_keeps_models_and_sends_what_was_preferred():
    method = methods.make("fedfomo", models=2, explore=0.0)
    layout = Layout.of(nn.Linear(1, 1))
    state = method.start(torch.tensor([10.0, 10.0]), layout)
    ids = torch.tensor([0, 2, 3, 5])
    dispatch = method.dispatch(state, ids, {})
    assert dispatch.rows.tolist() == [[0]] * 4
    assert dispatch.models.tolist() == [[10, 10]]
    changes = torch.tensor([[1.0, 0], [2, 0], [3, 0], [math.nan, 0]])
    state, verdict = method.aggregate(state, dispatch, fomo_uploads([0, 2, 3, 5], changes, torch.zeros(4, 1)))
    assert verdict.refused == {5: "not finite"}
    assert state.ids.tolist() == [0, 2, 3]
    assert state.models.tolist() == [[11, 10], [12, 10], [13, 10]]
    assert not state.preferences.any()

    ids = torch.tensor([0, 3, 7])
    dispatch = method.dispatch(state, ids, {})
    assert [sorted(rows) for rows in dispatch.rows.tolist()[:2]] == [[1, 2], [0, 1]]
    assert len(set(dispatch.rows.tolist()[2])) == 2
    extra = torch.tensor([[0.5, -1.0], [2.0, 1.0], [4.0, 3.0]])
    state, _ = method.aggregate(state, dispatch, fomo_uploads([0, 3, 7], torch.ones(3, 2), extra))
    assert state.ids.tolist() == [0, 2, 3, 7]
    assert state.models.tolist() == [[12, 11], [12, 10], [14, 11], [11, 11]]
    expected = torch.zeros(4, 4)
    for row, rows, liked in zip((0, 2, 3), dispatch.rows.tolist(), extra.tolist(), strict=True):
        for column, value in zip(rows, liked, strict=True):
            expected[row, column] += value
    assert torch.equal(state.preferences, expected)
    best = max((row for row in range(4) if row != 0), key=lambda row: float(expected[0, row]))
    assert method.dispatch(state, torch.tensor([0]), {}).rows[0, 0] == best


def test_fedfomos_bytes_are_several_models_down_and_one_up():
    simulation = Simulation(fedcap.Experiment(method={"name": "fedfomo", "models": 3}, **QUICK), SerialPool())
    weights = simulation.layout.size
    assert simulation.play().bytes == 4 * 10 * (2 * weights + 1)
    assert simulation.play().bytes == 4 * 10 * (4 * weights + 3)


@pytest.mark.parametrize("extra", [None, torch.zeros(2), torch.zeros(3, dtype=torch.long), [1.0, 2.0, 3.0]])
def test_an_upload_without_the_numbers_asked_for_is_refused(extra: object):
    good = Upload(0, torch.ones(4), 5, torch.zeros(3))
    admission = admit([good, Upload(1, torch.ones(4), 5, extra)], range(2), 4, extra=3)
    assert admission.uploads.ids.tolist() == [0]
    assert admission.uploads.extra.tolist() == [[0, 0, 0]]
    assert "3 finite numbers" in admission.refused[1]


# --- FLTrust


def test_trust_is_the_positive_cosine_and_lengths_are_the_roots():
    rng = np.random.default_rng(0)
    for _ in range(100):
        updates, root = rng.normal(size=(8, 5)), rng.normal(size=5)
        total, scores = np.zeros(5), 0.0
        for row in updates:
            cosine = row @ root / np.linalg.norm(row) / np.linalg.norm(root)
            score = max(0.0, cosine)
            total += score * row * np.linalg.norm(root) / np.linalg.norm(row)
            scores += score
        found = trusted_step(torch.from_numpy(updates), torch.from_numpy(root))
        np.testing.assert_allclose(found, total / scores, rtol=1e-9)


def test_whom_the_root_does_not_trust_does_not_move_the_model():
    root = torch.tensor([1.0, 0.0])
    assert trusted_step(torch.tensor([[-1.0, 0.0], [0.0, 0.0], [-1e30, 5.0]]), root).tolist() == [0, 0]
    near(trusted_step(torch.tensor([[1e30, 0.0], [-5.0, 0.0]]), root), root)
    assert trusted_step(torch.ones(2, 2), torch.zeros(2)).tolist() == [0, 0]
    method = methods.make("fltrust")
    state = method.start(torch.zeros(2), Layout.of(nn.Linear(1, 1)))
    uploads = Uploads(torch.tensor([0]), torch.ones(1, 2), torch.ones(1))
    dispatch = method.dispatch(state, uploads.ids, {})
    with pytest.raises(InputError, match="root set"):
        method.aggregate(state, dispatch, uploads)


def test_the_root_set_is_nobodys_data_and_changes_nobodys():
    dataset, seed = make_data("digits").load(), 3
    shares = (make_partition("iid"), 20, 80, 0.55, seed)
    with_root, without = (federate(dataset, *shares, root=root) for root in (100, 0))
    assert without.root is None
    assert with_root.root is not None
    assert sorted(torch.bincount(with_root.root.y).tolist()) == [10] * 10
    assert with_root.partition_hash == without.partition_hash
    assert all(torch.equal(a.x, b.x) for a, b in zip(with_root.train, without.train, strict=True))
    held = torch.cat([part.x for part in (*with_root.train, *with_root.test)]).flatten(1)
    taken = {tuple(row.tolist()) for row in held}
    twins = len(dataset.samples.x) - len({tuple(row.tolist()) for row in dataset.samples.x.flatten(1)})
    assert sum(tuple(row.tolist()) in taken for row in with_root.root.x.flatten(1)) <= twins
    with pytest.raises(InputError, match=r"root set of 300 .* 103 are missing"):
        federate(dataset, *shares, root=300)


def test_a_root_set_takes_what_there_is_of_rare_classes():
    labels = torch.tensor([0] * 50 + [1] * 50 + [2] * 8)
    held = [torch.arange(30), torch.tensor([60, 61, 100, 101, 102])]
    found = root_set(labels, held, 25, seed=0)
    assert torch.bincount(labels[found]).tolist() == [10, 10, 5]
    assert not set(found.tolist()) & set(torch.cat(held).tolist())
    assert not torch.equal(found, root_set(labels, held, 25, seed=1))
    assert len(fedcap.Experiment(method="fltrust").load_data().root) == 100


# --- Rows and rules in a round


@pytest.mark.parametrize(
    "name", ["mean", "krum", "multi-krum", "median", "geometric-median", "gas", "bucketing"]
)
def test_hostile_rows_never_break_a_round_and_are_told(name: str):
    rows = torch.randn(10, 6)
    rows[2], rows[5, 0] = math.nan, math.inf
    uploads = Uploads(torch.arange(10), rows, torch.ones(10), malicious=3)
    step, verdict = combine(make_rule(name), uploads)
    assert step.isfinite().all()
    assert verdict.refused == {2: "not finite", 5: "not finite"}
    assert math.isnan(verdict.norms[2])
    assert verdict.notes == []
    good = [k for k in range(10) if k not in (2, 5)]
    assert torch.equal(step, make_rule(name)(rows[good], torch.ones(8), 1))


def test_a_round_too_small_for_m_lowers_it_and_says_so():
    uploads = Uploads(torch.arange(4), torch.randn(4, 3), torch.ones(4), malicious=2)
    step, verdict = combine(make_rule("multi-krum"), uploads)
    assert torch.equal(step, make_rule("multi-krum")(uploads.updates, malicious=1))
    assert verdict.notes == ["2 malicious of 4 rows assumed: MultiKrum, told 1, withstands 0"]


def test_a_rule_that_withstands_fewer_than_are_assumed_says_so_and_a_mean_promises_nothing():
    uploads = Uploads(torch.arange(20), torch.randn(20, 3), torch.ones(20), malicious=6)
    _, verdict = combine(make_rule("bucketing", rule="median", size=2), uploads)
    assert verdict.notes == ["6 malicious of 20 rows assumed: Bucketing, told 6, withstands 4"]
    assert combine(make_rule("median"), uploads)[1].notes == []
    assert combine(make_rule("mean"), uploads)[1].notes == []


def test_a_round_too_small_for_the_rule_takes_the_median_and_says_so():
    uploads = Uploads(torch.arange(2), torch.randn(2, 3), torch.ones(2), malicious=0)
    step, verdict = combine(make_rule("krum"), uploads)
    near(step, uploads.updates.mean(dim=0))
    assert verdict.notes == ["2 rows are too few for Krum: median used"]
    step, verdict = combine(make_rule("krum"), uploads.only(torch.zeros(2, dtype=torch.bool)))
    assert step is None


def test_small_rounds_go_on_and_are_noted_in_the_record():
    method = {"name": "fedavg", "rule": "krum"}
    result = fedcap.Experiment(method=method, attack="ipm", participation=0.2, **QUICK).run()
    for record in result.history:
        assert record.notes == ["2 rows are too few for Krum: median used"]
        assert RoundRecord.from_json(record.to_json()) == record


# --- Every method, in the one loop


def without_times(result: Result) -> dict[str, object]:
    content = json.loads(result.to_json())
    return {key: value for key, value in content.items() if not key.startswith("seconds")}


def rival(name: str, **settings: object) -> fedcap.Experiment:
    return fedcap.Experiment(method={"name": name, **RIVALS[name]}, **{**QUICK, **settings})


@pytest.mark.parametrize("attack", ["none", "lie", "ipm", "label-flipping", "model-replacement"])
@pytest.mark.parametrize("name", RIVALS)
def test_every_method_plays_under_attack_with_half_of_the_clients(name: str, attack: str):
    result = rival(name, attack=attack, participation=0.5).run()
    assert not result.diverged
    assert result.tacc_shared is not None
    assert [len(record.participants) for record in result.history] == [5, 5]
    assert result.removed == {}


@pytest.mark.parametrize("name", RIVALS)
def test_a_resumed_run_and_one_of_two_workers_have_the_same_bits(name: str, tmp_path: Path, pool: Pool):
    experiment = rival(name, attack="min-max", participation=0.6, rounds=3)
    whole = experiment.run(out=tmp_path / "whole")
    half = tmp_path / "half"

    class Killed(Exception):
        pass

    class Killer:
        def started(self, simulation: Simulation) -> None: ...

        def round_done(self, simulation: Simulation, record: RoundRecord) -> None:
            if record.round == 2:
                raise Killed

        def finished(self, result: Result) -> None: ...

    with pytest.raises(Killed):
        experiment.run(out=half, observers=[Killer()])
    resumed = experiment.run(out=half, pool=pool)
    assert without_times(resumed) == without_times(whole)
    assert [r.norms for r in resumed.history] == [r.norms for r in whole.history]
    assert (half / CHECKPOINT).read_bytes() == (tmp_path / "whole" / CHECKPOINT).read_bytes()
    assert (half / RESULT).exists()


@pytest.mark.parametrize("form", ["nan", "huge"])
@pytest.mark.parametrize("name", RIVALS)
def test_hostile_rows_do_not_stop_any_method(name: str, form: str):
    attack = {"name": "malformed", "form": form, "clients": [3, 7]}
    options = RIVALS[name] | ({"rule": "median"} if name in ("ditto", "fedrod") else {})
    result = fedcap.Experiment(
        method={"name": name, **options}, attack=attack, **{**QUICK, "rounds": 3}
    ).run()
    assert not result.diverged
    told = {3: "not finite", 7: "not finite"} if form == "nan" else {}
    assert all(record.refused == told for record in result.history)


# --- What they are for

SHOWN = {"rounds": 6, "eval_every": 6, "training": {"lr": 0.1}}


def test_on_digits_personal_models_beat_fedavgs_shared_one(pool: Pool):
    results = {
        name: fedcap.Experiment(method=name, eval_every=30).run(pool=pool)
        for name in ("fedavg", "ditto", "fedrod")
    }
    shared = results["fedavg"].tacc_shared
    assert all(result.tacc_personal > shared for result in results.values())


def test_under_ipm_the_mean_collapses_and_multi_krum_does_not(pool: Pool):
    mean = fedcap.Experiment(method="fedavg", attack="ipm", **SHOWN).run(pool=pool)
    method = {"name": "fedavg", "rule": "multi-krum"}
    robust = fedcap.Experiment(method=method, attack="ipm", **SHOWN).run(pool=pool)
    assert mean.tacc_shared < 30
    assert robust.tacc_shared > mean.tacc_shared + 20
