"""FedCAP's server, round by round, against dictionaries of rows and NumPy in double precision."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from helpers import Ended, end_round, refused
from torch import nn

from fedcap.detection import Batch
from fedcap.methods import make
from fedcap.methods.base import Sent
from fedcap.training import Layout


def mixing_weights(request: np.ndarray, pool: np.ndarray, own: int, alpha: float, phi: float) -> list[float]:
    """One row of Eqs. 4 and 5: softmax over the others times 1 − phi, phi for oneself."""
    if len(pool) == 1:
        return [1.0]
    lengths = np.linalg.norm(pool, axis=1) * np.linalg.norm(request)
    terms = np.exp(alpha * (pool @ request) / lengths)
    terms[own if own >= 0 else []] = 0
    shares = terms / terms.sum() * (1 - phi if own >= 0 else 1)
    return [phi if i == own else float(share) for i, share in enumerate(shares)]


class Small(nn.Module):
    """Two layers, so that the last one is a proper part: 2·3 + 3 weights, then 3·2 + 2."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 3)
        self.head = nn.Linear(3, 2)


LAYOUT = Layout.of(Small())
SIZE = LAYOUT.size
HEAD = (9, 17)


@dataclass
class Reference:
    """One server of the paper, row by row: what FACTS calls w, W~ and D~, by client id."""

    w: np.ndarray
    alpha: float = 10.0
    phi: float = 0.3
    t_norm: float = 10.0
    compared: tuple[int, int] = (0, SIZE)
    customise: bool = True
    calibrate: bool = True
    detect: bool = True
    models: dict[int, np.ndarray] = field(default_factory=dict)
    updates: dict[int, np.ndarray] = field(default_factory=dict)
    samples: dict[int, float] = field(default_factory=dict)
    weights: dict[int, list[float]] = field(default_factory=dict)
    received: dict[int, np.ndarray] = field(default_factory=dict)
    before: np.ndarray | None = None

    def current(self) -> np.ndarray:
        total = sum(self.samples.values())
        return sum((n / total * self.models[k] for k, n in self.samples.items()), np.zeros(SIZE))

    def send(self, ids: list[int], requests: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        pool = sorted(self.models)
        self.before = self.w
        if pool:
            self.w = self.current()
        self.received = {}
        for k in ids:
            if not pool or not self.customise:
                self.received[k] = self.w
                continue
            asking = self.updates[k] if k in self.models else requests[k]
            own = pool.index(k) if k in self.models else -1
            first, end = self.compared
            columns = np.stack([self.updates[i][first:end] for i in pool])
            self.weights[k] = mixing_weights(asking[first:end], columns, own, self.alpha, self.phi)
            self.received[k] = sum(
                (p * self.models[i] for p, i in zip(self.weights[k], pool, strict=True)), np.zeros(SIZE)
            )
        return self.received

    def aggregate(self, sent: dict[int, np.ndarray], samples: dict[int, float]) -> list[int]:
        models = {k: self.received[k] + d for k, d in sent.items()}
        updates = {k: models[k] - self.w if self.calibrate else d for k, d in sent.items()}
        norms = {k: math.sqrt(sum(float(x) ** 2 for x in d)) for k, d in updates.items()}
        limit = self.t_norm if self.detect else math.inf
        out = [k for k, norm in norms.items() if not math.isfinite(norm) or norm > limit]
        if len(out) < len(sent):
            self.models, self.updates, self.samples = models, updates, dict(samples)
        elif set(self.models) - set(out):  # the old pools stand, seen from where they were
            self.w = self.before
        for k in out:
            for pool in (self.models, self.updates, self.samples):
                pool.pop(k, None)
        return out


@dataclass
class Played:
    """What a round sent and came to."""

    received: torch.Tensor
    mixing: torch.Tensor | None
    found: Ended

    @property
    def removed(self) -> dict[int, str]:
        return {client: reason.sentence for client, reason in self.found.verdict.removed.items()}


@dataclass
class Match:
    """The package's method and the reference, fed the same and compared after every step."""

    options: dict[str, object] = field(default_factory=dict)
    compared: tuple[int, int] = (0, SIZE)
    seed: int = 7

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        start = self.rng.normal(size=SIZE)
        self.method = make("fedcap", **self.options)
        self.state = self.method.init(torch.from_numpy(start), LAYOUT)
        known = {key: value for key, value in self.options.items() if key != "similarity"}
        self.reference = Reference(start, compared=self.compared, **known)

    def draw(self, ids: list[int], length: float = 1.0) -> dict[int, np.ndarray]:
        return {k: length * self.rng.normal(size=SIZE) / math.sqrt(SIZE) for k in ids}

    def round(self, ids: list[int], updates: dict[int, np.ndarray] | None = None):
        tensor_ids = torch.tensor(ids, dtype=torch.long)
        sent = self.method.send(self.state, tensor_ids)
        asked = sent.pending.tolist()
        customised = self.reference.customise and self.reference.models
        assert asked == [k for k in ids if customised and k not in self.reference.models]
        if asked:
            np.testing.assert_array_equal(sent.start.numpy(), self.previous)
        requests = self.draw(asked)
        if asked:
            given = {k: torch.from_numpy(r) for k, r in requests.items()}
            sent = self.method.send(self.state, tensor_ids, given)
        expected = self.reference.send(ids, requests)
        received = sent.models[sent.index[:, 0]].clone()
        for at, k in enumerate(ids):
            np.testing.assert_allclose(received[at].numpy(), expected[k], rtol=1e-9, atol=1e-11)
            if sent.mixing is not None:
                np.testing.assert_allclose(
                    sent.mixing[at].numpy(), self.reference.weights[k], rtol=1e-9, atol=1e-12
                )
        updates = self.draw(ids) if updates is None else updates
        arrived = sorted(updates)
        samples = {k: float(self.rng.integers(1, 100)) for k in arrived}
        batch = Batch(
            torch.tensor(arrived, dtype=torch.long),
            torch.from_numpy(np.stack([updates[k] for k in arrived])) if arrived else torch.empty(0, SIZE),
            torch.tensor([samples[k] for k in arrived], dtype=torch.float64),
        )
        found = end_round(self.method, self.state, batch, sent)
        self.state = found.state
        out = self.reference.aggregate(updates, samples)
        assert sorted(found.verdict.removed if self.method.detect else found.uncounted) == sorted(out)
        assert self.state.ids.tolist() == sorted(self.reference.models)
        self.previous = self.state.model.numpy()
        np.testing.assert_allclose(self.previous, self.reference.w, rtol=1e-9, atol=1e-11)
        for at, k in enumerate(self.state.ids.tolist()):
            updates = self.state.models - self.state.model if self.method.calibrate else self.state.updates
            for rows, pool in ((self.state.models, "models"), (updates, "updates")):
                np.testing.assert_allclose(
                    rows[at].numpy(), getattr(self.reference, pool)[k], rtol=1e-9, atol=1e-11
                )
            assert float(self.state.samples[at]) == self.reference.samples[k]
        return Played(received, sent.mixing, found)


def test_in_the_first_round_all_clients_receive_the_common_weights():
    match = Match()
    start = match.state.model.clone()
    played = match.round([0, 1, 2])
    assert torch.equal(played.received, start.repeat(3, 1))
    assert played.mixing is None
    assert played.removed == {}


@pytest.mark.parametrize("alpha", [0.0, 2.0, 10.0])
def test_three_rounds_of_the_same_clients_follow_the_paper(alpha: float):
    match = Match({"alpha": alpha, "phi": 0.2})
    for _ in range(3):
        match.round([0, 2, 3, 7])


def test_newcomers_are_asked_for_a_request_trained_from_last_rounds_global_model():
    match = Match()
    match.round([1, 4, 6])
    played = match.round([0, 4, 5, 6, 9])
    assert played.mixing is not None
    assert played.mixing.shape == (5, 3)
    match.round([1, 4, 9])


def test_a_client_over_the_limit_is_removed_and_leaves_the_pool():
    match = Match({"t_norm": 5.0})
    match.round([0, 1, 2, 3])
    sent = match.draw([0, 1, 2, 3])
    sent[2] *= 100
    played = match.round([0, 1, 2, 3], sent)
    assert list(played.removed) == [2]
    assert "over 5" in played.removed[2]
    match.round([0, 1, 3])


def test_a_calibrated_norm_of_exactly_the_threshold_stays():
    method = make("fedcap", t_norm=10.0)
    state = method.init(torch.zeros(SIZE), LAYOUT)
    ids = torch.tensor([0, 1])
    updates = torch.zeros(2, SIZE)
    updates[0, :2] = torch.tensor([6.0, 8.0])
    updates[1, :2] = torch.tensor([6.0, 8.001])
    uploads = Batch(ids, updates, torch.ones(2))
    found = end_round(method, state, uploads)
    assert found.state.ids.tolist() == [0]
    assert list(found.verdict.removed) == [1]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_client_with_a_row_that_is_not_finite_is_removed(bad: float):
    match = Match()
    match.round([0, 1, 2])
    sent = match.draw([0, 1, 2])
    sent[1][3] = bad
    played = match.round([0, 1, 2], sent)
    assert played.removed == {1: "not finite"}
    assert match.state.models.isfinite().all()
    match.round([0, 2])


def test_the_only_client_of_the_pool_receives_its_own_model():
    match = Match()
    sent = {k: row * (1 if k == 1 else 1000) for k, row in match.draw([0, 1, 2]).items()}
    match.round([0, 1, 2], sent)
    played = match.round([1, 3])
    assert played.mixing is not None
    assert played.mixing.tolist() == [[1.0], [1.0]]


def test_if_no_upload_counts_the_last_pool_stays_without_removed_clients():
    match = Match()
    match.round([0, 1, 2, 3])
    kept = match.state.models[3].clone()
    match.round([0, 1, 2], match.draw([0, 1, 2], length=1000))
    assert match.state.ids.tolist() == [3]
    assert torch.equal(match.state.models[0], kept)
    match.round([3])


def test_if_all_clients_are_removed_the_global_model_stays():
    match = Match()
    match.round([0, 1])
    expected = match.method.inspect(match.state).global_model
    match.round([0, 1], match.draw([0, 1], length=1000))
    assert match.state.ids.tolist() == []
    played = match.round([4, 5])
    assert torch.equal(played.received, expected.repeat(2, 1))


def test_participants_that_sent_nothing_leave_the_pool():
    match = Match()
    match.round([0, 1, 2])
    match.round([0, 1, 2], match.draw([0, 2]))
    assert match.state.ids.tolist() == [0, 2]


def test_without_customisation_all_clients_receive_the_global_model():
    match = Match({"customise": False})
    match.round([0, 1, 2])
    played = match.round([0, 1, 2, 5])
    assert played.mixing is None
    assert torch.equal(played.received, played.received[:1].repeat(4, 1))
    match.round([1, 5])


def test_without_calibration_updates_are_compared_as_sent():
    match = Match({"calibrate": False, "t_norm": 5.0})
    match.round([0, 1, 2])
    sent = match.draw([0, 1, 2, 4])
    sent[4] *= 100
    played = match.round([0, 1, 2, 4], sent)
    assert list(played.removed) == [4]
    assert np.array_equal(match.state.updates[0].numpy(), sent[0])
    match.round([0, 1, 2])


def test_without_detection_only_rows_that_are_not_finite_do_not_count():
    match = Match({"detect": False})
    sent = match.draw([0, 1, 2])
    sent[1] *= 1000
    sent[2][0] = math.nan
    played = match.round([0, 1, 2], sent)
    assert played.removed == {}
    assert played.found.uncounted == {2}
    assert match.state.ids.tolist() == [0, 1]
    match.round([0, 1, 2])


def test_last_layer_similarity_compares_the_classifiers_weights_alone():
    assert LAYOUT.last_layer == slice(*HEAD)
    match = Match({"similarity": "last-layer"}, compared=HEAD)
    for ids in ([0, 1, 2], [0, 1, 2, 5], [1, 5, 6]):
        match.round(ids)


def test_the_rounds_do_not_write_into_earlier_states():
    match = Match()
    match.round([0, 1, 2])
    before = match.state
    copies = {name: getattr(before, name).clone() for name in ("model", "ids", "models", "updates")}
    match.round([0, 1, 2])
    for name, copy in copies.items():
        assert torch.equal(getattr(before, name), copy)


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": -1},
        {"alpha": math.inf},
        {"phi": -0.1},
        {"phi": 1.1},
        {"lambda_": -1},
        {"t_norm": 0},
        {"t_norm": math.nan},
        {"similarity": "first-layer"},
    ],
)
def test_options_outside_their_range_are_refused(options: dict[str, object]):
    with refused("bad-value"):
        make("fedcap", **options)


def test_a_view_does_not_change_the_global_model():
    method = make("fedcap")
    state = method.init(torch.zeros(SIZE), LAYOUT)
    ids = torch.tensor([0])
    sent = method.send(state, ids)  # one client, and the global model for it
    method.view(state, sent, Batch(ids, torch.ones(1, SIZE), torch.ones(1)))
    assert torch.equal(state.model, torch.zeros(SIZE))


def test_models_made_for_one_client_each_are_taken_without_a_copy():
    models, ids = torch.randn(3, SIZE), torch.arange(3)
    sent = Sent(ids, models, ids[:, None], is_fresh=True)
    assert sent.take_models(ids).data_ptr() == models.data_ptr()
    assert not len(sent.models)


@pytest.mark.parametrize("is_fresh", [False, True])
def test_models_of_some_participants_and_shared_models_are_copied(is_fresh: bool):
    models, ids = torch.randn(3, SIZE), torch.arange(3)
    sent = Sent(ids, models, ids[:, None], is_fresh=is_fresh)
    taken = sent.take_models(torch.tensor([0, 2]))
    assert torch.equal(taken, models[[0, 2]])
    before = models.clone()
    taken.zero_()
    Sent.to_all(ids, models[0]).take_models(ids).zero_()
    assert torch.equal(sent.models, before)


# --- The pool in bfloat16


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"calibrate": False},
        {"similarity": "last-layer"},
        {"preset": "hardened"},
        {"customise": False},
        {"t_norm": 5.0},
    ],
    ids=str,
)
def test_a_pool_in_bfloat16_serves_as_the_pool_of_its_rounded_updates(options: dict[str, object]):
    torch.manual_seed(0)
    whole, half = make("fedcap", **options), make("fedcap", pools="bfloat16", **options)
    start, ids = torch.randn(SIZE), torch.arange(4)
    updates = torch.randn(4, SIZE) * 0.1
    updates[3] *= 8 / updates[3].norm()  # is removed where t_norm is 5
    batch = Batch(ids, updates, torch.tensor([4.0, 2, 8, 1]))
    state, stored = (end_round(method, method.init(start, LAYOUT), batch).state for method in (whole, half))
    assert stored.ids.tolist() == state.ids.tolist()
    assert len(stored.ids) == (3 if "t_norm" in options else 4)
    assert stored.models.dtype == torch.bfloat16
    assert torch.equal(stored.models, (state.models - state.model).to(torch.bfloat16))
    rounded = replace(
        state,
        models=state.model + stored.models.float(),
        updates=stored.updates.float() if len(state.updates) else state.updates,
    )
    participants, requests = torch.tensor([0, 2, 9]), {9: torch.randn(SIZE)}
    for now, kept in ((rounded, stored), (whole.forget(rounded, ids[:1]), half.forget(stored, ids[:1]))):
        expected = whole.send(now, participants, {**requests, 0: torch.ones(SIZE)})
        found = half.send(kept, participants, {**requests, 0: torch.ones(SIZE)})
        torch.testing.assert_close(found.models, expected.models, rtol=1e-4, atol=1e-5)
        if expected.mixing is not None:
            torch.testing.assert_close(found.mixing, expected.mixing, rtol=1e-4, atol=1e-5)
        expected_models, found_models = whole.inspect(now), half.inspect(kept)
        torch.testing.assert_close(found_models.global_model, expected_models.global_model)
        torch.testing.assert_close(found_models.models, expected_models.models)


def test_the_default_of_pools_leaves_the_digest_unchanged():
    assert "pools" not in make("fedcap").settings()
    assert make("fedcap", pools="bfloat16").settings()["pools"] == "bfloat16"
