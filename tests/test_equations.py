"""FedCAP's equations, and its server steps, against NumPy written out by hand in double precision."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn

import fedcap
from fedcap.methods import equations, make
from fedcap.methods.base import Uploads
from fedcap.methods.equations import Rows
from fedcap.registry import InputError
from fedcap.training import Layout


def matrix(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    dot = sum(float(x) * float(y) for x, y in zip(a, b, strict=True))
    length_a = math.sqrt(sum(float(x) ** 2 for x in a))
    length_b = math.sqrt(sum(float(x) ** 2 for x in b))
    return dot / (length_a * length_b) if length_a and length_b else 0.0


def mixing_weights(request: np.ndarray, pool: np.ndarray, own: int, alpha: float, phi: float) -> list[float]:
    """One row of Eqs. 4 and 5: softmax over the others times 1 − phi, phi for oneself."""
    if len(pool) == 1:
        return [1.0]
    likeness = {i: alpha * cosine(request, pool[i]) for i in range(len(pool)) if i != own}
    highest = max(likeness.values())
    terms = {i: math.exp(value - highest) for i, value in likeness.items()}
    total = sum(terms.values())
    shared = 1 - phi if own >= 0 else 1.0
    return [phi if i == own else shared * terms[i] / total for i in range(len(pool))]


def assert_weights(requests: torch.Tensor, pool: torch.Tensor, own: list[int], alpha: float, phi: float):
    weights = equations.customization_weights(requests, pool, torch.tensor(own), alpha, phi)
    expected = [
        mixing_weights(row.numpy(), pool.numpy(), mine, alpha, phi)
        for row, mine in zip(requests, own, strict=True)
    ]
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(weights.sum(dim=1).numpy(), np.ones(len(own)), rtol=1e-12)
    assert (weights >= 0).all()


# --- Eqs. 4 and 5: the weights


def test_the_weights_are_part_of_the_public_surface():
    assert fedcap.customization_weights is equations.customization_weights
    assert fedcap.calibrate is equations.calibrate


def test_cosines_are_those_of_every_request_with_every_update():
    requests, pool = matrix(3, 5), matrix(4, 5, seed=1)
    expected = [[cosine(r, p) for p in pool.numpy()] for r in requests.numpy()]
    np.testing.assert_allclose(
        equations.cosine_similarities(Rows(requests), Rows(pool)).numpy(), expected, rtol=1e-12
    )


def test_a_vector_of_zeros_has_cosine_zero_with_anything():
    pool = torch.stack([torch.zeros(3), torch.ones(3)])
    assert equations.cosine_similarities(Rows(pool), Rows(pool)).tolist() == [[0, 0], [0, pytest.approx(1)]]


@pytest.mark.parametrize("alpha", [0.5, 2.0, 10.0])
@pytest.mark.parametrize("phi", [0.0, 0.1, 0.3, 1.0])
def test_members_give_themselves_phi_and_share_the_rest(alpha: float, phi: float):
    pool = matrix(5, 7)
    assert_weights(pool, pool, [0, 1, 2, 3, 4], alpha, phi)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 10.0])
def test_newcomers_share_everything_over_all(alpha: float):
    assert_weights(matrix(3, 7, seed=1), matrix(5, 7), [-1, -1, -1], alpha, 0.3)


def test_members_and_newcomers_are_served_together():
    pool = matrix(4, 6)
    requests = torch.stack([pool[2], matrix(6, seed=1), pool[0], matrix(6, seed=2)])
    assert_weights(requests, pool, [2, -1, 0, -1], 5.0, 0.2)


def test_alpha_zero_gives_all_others_the_same():
    pool = matrix(4, 6)
    assert_weights(torch.cat([pool, matrix(1, 6, seed=1)]), pool, [0, 1, 2, 3, -1], 0.0, 0.4)


@pytest.mark.parametrize("own", [0, -1])
def test_a_pool_of_one_gives_that_one_everything(own: int):
    assert_weights(matrix(1, 6), matrix(1, 6, seed=1), [own], 10.0, 0.3)


def test_two_clients_share_the_rest_with_each_other_alone():
    pool = matrix(2, 6)
    weights = equations.customization_weights(pool, pool, torch.tensor([0, 1]), 7.0, 0.3)
    np.testing.assert_allclose(weights.numpy(), [[0.3, 0.7], [0.7, 0.3]], rtol=1e-12)


def test_a_request_of_zeros_likes_everybody_the_same():
    pool = matrix(4, 6)
    assert_weights(torch.zeros(1, 6, dtype=torch.float64), pool, [-1], 10.0, 0.3)
    pool[1] = 0
    assert_weights(pool, pool, [0, 1, 2, 3], 10.0, 0.3)


def test_identical_rows_get_identical_weights():
    pool = matrix(1, 6).repeat(4, 1)
    assert_weights(pool, pool, [0, 1, 2, 3], 10.0, 0.25)
    assert_weights(pool[:1], pool, [-1], 10.0, 0.25)


def test_large_alpha_picks_the_nearest_other_and_stays_finite():
    pool = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0]], dtype=torch.float64)
    weights = equations.customization_weights(pool, pool, torch.tensor([0, 1, 2]), 1e6, 0.3)
    np.testing.assert_allclose(weights.numpy(), [[0.3, 0.7, 0], [0.7, 0.3, 0], [0, 0.7, 0.3]], atol=1e-12)


def test_only_direction_counts_not_length():
    pool = matrix(4, 6)
    own = torch.tensor([0, 1, 2, 3])
    longer = pool * torch.tensor([[1e-3], [1.0], [7.0], [1e3]], dtype=torch.float64)
    np.testing.assert_allclose(
        equations.customization_weights(longer, longer, own, 10.0, 0.3).numpy(),
        equations.customization_weights(pool, pool, own, 10.0, 0.3).numpy(),
        rtol=1e-9,
    )


def test_single_precision_is_close_to_double():
    pool = matrix(6, 2000)
    own = torch.arange(6)
    single = equations.customization_weights(pool.float(), pool.float(), own, 10.0, 0.3)
    assert single.dtype == torch.float32
    expected = [mixing_weights(row, pool.numpy(), k, 10.0, 0.3) for k, row in enumerate(pool.numpy())]
    np.testing.assert_allclose(single.numpy(), expected, rtol=1e-4)


# --- Eqs. 3 and 6, recovery, calibration, detection


def test_customised_models_are_the_weighted_sums_of_the_pool():
    weights, models = matrix(2, 3), matrix(3, 4, seed=1)
    expected = [
        [sum(float(weights[r, n] * models[n, d]) for n in range(3)) for d in range(4)] for r in range(2)
    ]
    np.testing.assert_allclose(equations.customised_models(weights, models).numpy(), expected, rtol=1e-12)


def test_the_global_model_weighs_each_model_by_its_samples():
    models, samples = matrix(3, 4), [10, 1, 89]
    expected = [sum(samples[n] * float(models[n, d]) for n in range(3)) / 100 for d in range(4)]
    for dtype in (torch.int64, torch.float64):
        found = equations.global_model(models, torch.tensor(samples, dtype=dtype))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_the_global_model_keeps_the_models_precision():
    models = matrix(3, 4).float()
    assert equations.global_model(models, torch.tensor([1.0, 2.0, 3.0])).dtype == torch.float32


def test_huge_sample_counts_do_not_overflow():
    samples = torch.tensor([1e300, 1e300], dtype=torch.float64)
    found = equations.global_model(torch.tensor([[1.0], [3.0]]), samples)
    assert found.tolist() == [2.0]


def test_recovering_adds_what_was_received_and_calibrating_takes_the_reference_off():
    received, updates, reference = matrix(2, 3), matrix(2, 3, seed=1), matrix(3, seed=2)
    models = equations.recover(received, updates)
    calibrated = equations.calibrate(models, reference)
    for n in range(2):
        for d in range(3):
            assert float(models[n, d]) == float(received[n, d]) + float(updates[n, d])
            assert float(calibrated[n, d]) == float(models[n, d]) - float(reference[d])


def test_a_norm_exceeds_the_threshold_if_longer_or_no_number():
    norms = torch.tensor([0.0, 9.999, 10.0, 10.001, math.inf, math.nan])
    assert equations.exceeds(norms, 10.0).tolist() == [False, False, False, True, True, True]


def test_an_infinite_norm_exceeds_even_an_infinite_threshold():
    assert equations.exceeds(torch.tensor([1e30, math.inf, math.nan]), math.inf).tolist() == [
        False,
        True,
        True,
    ]


# --- The rounds of FedCAP, against dictionaries of rows


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

    def current(self) -> np.ndarray:
        total = sum(self.samples.values())
        return sum((n / total * self.models[k] for k, n in self.samples.items()), np.zeros(SIZE))

    def dispatch(self, ids: list[int], requests: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        pool = sorted(self.models)
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
        elif self.calibrate:  # the old pools stand, seen from this round's global model
            self.updates = {k: model - self.w for k, model in self.models.items()}
        for k in out:
            for pool in (self.models, self.updates, self.samples):
                pool.pop(k, None)
        return out


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
        self.state = self.method.start(torch.from_numpy(start), LAYOUT)
        known = {key: value for key, value in self.options.items() if key != "similarity"}
        self.reference = Reference(start, compared=self.compared, **known)

    def draw(self, ids: list[int], length: float = 1.0) -> dict[int, np.ndarray]:
        return {k: length * self.rng.normal(size=SIZE) / math.sqrt(SIZE) for k in ids}

    def round(self, ids: list[int], sent: dict[int, np.ndarray] | None = None):
        tensor_ids = torch.tensor(ids, dtype=torch.long)
        asked = tensor_ids[self.method.asks(self.state, tensor_ids)].tolist()
        customised = self.reference.customise and self.reference.models
        assert asked == [k for k in ids if customised and k not in self.reference.models]
        if asked:
            np.testing.assert_array_equal(self.method.request_start(self.state).numpy(), self.previous)
        requests = self.draw(asked)
        dispatch = self.method.dispatch(
            self.state, tensor_ids, {k: torch.from_numpy(r) for k, r in requests.items()}
        )
        expected = self.reference.dispatch(ids, requests)
        for at, k in enumerate(ids):
            received = dispatch.models[dispatch.rows[at, 0]].numpy()
            np.testing.assert_allclose(received, expected[k], rtol=1e-9, atol=1e-11)
            if dispatch.mixing is not None:
                np.testing.assert_allclose(
                    dispatch.mixing[at].numpy(), self.reference.weights[k], rtol=1e-9, atol=1e-12
                )
        sent = self.draw(ids) if sent is None else sent
        arrived = sorted(sent)
        samples = {k: float(self.rng.integers(1, 100)) for k in arrived}
        uploads = Uploads(
            torch.tensor(arrived, dtype=torch.long),
            torch.from_numpy(np.stack([sent[k] for k in arrived])) if arrived else torch.empty(0, SIZE),
            torch.tensor([samples[k] for k in arrived], dtype=torch.float64),
        )
        self.state, verdict = self.method.aggregate(self.state, dispatch, uploads)
        out = self.reference.aggregate(sent, samples)
        assert sorted(verdict.removed if self.method.detect else verdict.refused) == sorted(out)
        assert self.state.ids.tolist() == sorted(self.reference.models)
        self.previous = self.state.model.numpy()
        np.testing.assert_allclose(self.previous, self.reference.w, rtol=1e-9, atol=1e-11)
        for at, k in enumerate(self.state.ids.tolist()):
            updates = self.state.models - self.state.model if self.method.calibrate else self.state.updates
            for found, pool in ((self.state.models, "models"), (updates, "updates")):
                np.testing.assert_allclose(
                    found[at].numpy(), getattr(self.reference, pool)[k], rtol=1e-9, atol=1e-11
                )
            assert float(self.state.samples[at]) == self.reference.samples[k]
        return dispatch, verdict


def test_in_the_first_round_everybody_receives_the_common_start():
    match = Match()
    start = match.state.model.clone()
    dispatch, verdict = match.round([0, 1, 2])
    assert torch.equal(dispatch.received(torch.tensor([0, 1, 2])), start.repeat(3, 1))
    assert dispatch.mixing is None
    assert verdict.removed == {}


@pytest.mark.parametrize("alpha", [0.0, 2.0, 10.0])
def test_three_rounds_of_the_same_clients_follow_the_paper(alpha: float):
    match = Match({"alpha": alpha, "phi": 0.2})
    for _ in range(3):
        match.round([0, 2, 3, 7])


def test_newcomers_are_asked_for_a_request_trained_from_last_rounds_global_model():
    match = Match()
    match.round([1, 4, 6])
    dispatch, _ = match.round([0, 4, 5, 6, 9])
    assert dispatch.mixing is not None
    assert dispatch.mixing.shape == (5, 3)
    match.round([1, 4, 9])


def test_nobody_is_asked_while_the_pools_are_empty():
    method = make("fedcap")
    state = method.start(torch.zeros(SIZE), LAYOUT)
    assert not method.asks(state, torch.arange(4)).any()


def test_whoever_is_too_long_is_removed_and_leaves_the_pools():
    match = Match({"t_norm": 5.0})
    match.round([0, 1, 2, 3])
    sent = match.draw([0, 1, 2, 3])
    sent[2] *= 100
    _, verdict = match.round([0, 1, 2, 3], sent)
    assert list(verdict.removed) == [2]
    assert "over 5" in verdict.removed[2]
    match.round([0, 1, 3])


def test_the_norm_that_counts_is_the_calibrated_one():
    match = Match({"t_norm": 5.0})
    match.round([0, 1, 2])
    # The update that takes client 0 exactly to the global model has length zero once calibrated.
    ids = torch.tensor([0, 1, 2])
    dispatch = match.method.dispatch(match.state, ids, {})
    sent = match.draw([0, 1, 2])
    sent[0] = (match.method._global_model(match.state) - dispatch.received(ids)[0]).numpy()
    _, verdict = match.round([0, 1, 2], sent)
    assert verdict.norms[0] == pytest.approx(0, abs=1e-12)


def test_a_calibrated_norm_of_exactly_the_threshold_stays():
    method = make("fedcap", t_norm=10.0)
    state = method.start(torch.zeros(SIZE), LAYOUT)
    ids = torch.tensor([0, 1])
    updates = torch.zeros(2, SIZE)
    updates[0, :2] = torch.tensor([6.0, 8.0])
    updates[1, :2] = torch.tensor([6.0, 8.001])
    state, verdict = method.aggregate(
        state, method.dispatch(state, ids, {}), Uploads(ids, updates, torch.ones(2))
    )
    assert state.ids.tolist() == [0]
    assert list(verdict.removed) == [1]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_is_removed_and_spoils_nothing(bad: float):
    match = Match()
    match.round([0, 1, 2])
    sent = match.draw([0, 1, 2])
    sent[1][3] = bad
    _, verdict = match.round([0, 1, 2], sent)
    assert verdict.removed == {1: "not finite"}
    assert match.state.models.isfinite().all()
    match.round([0, 2])


def test_a_row_that_is_not_finite_is_removed_under_any_threshold():
    method = make("fedcap", t_norm=1e300)
    state = method.start(torch.zeros(SIZE), LAYOUT)
    ids = torch.tensor([0, 1])
    updates = torch.zeros(2, SIZE)
    updates[1] = math.inf
    _, verdict = method.aggregate(
        state, method.dispatch(state, ids, {}), Uploads(ids, updates, torch.ones(2))
    )
    assert verdict.removed == {1: "not finite"}


def test_the_last_one_left_receives_its_own_model_back():
    match = Match()
    sent = {k: row * (1 if k == 1 else 1000) for k, row in match.draw([0, 1, 2]).items()}
    match.round([0, 1, 2], sent)
    dispatch, _ = match.round([1, 3])
    assert dispatch.mixing is not None
    assert dispatch.mixing.tolist() == [[1.0], [1.0]]


def test_when_nobody_comes_through_the_last_pools_stand_without_the_removed():
    match = Match()
    match.round([0, 1, 2, 3])
    kept = match.state.models[3].clone()
    match.round([0, 1, 2], match.draw([0, 1, 2], length=1000))
    assert match.state.ids.tolist() == [3]
    assert torch.equal(match.state.models[0], kept)
    match.round([3])


def test_when_everybody_is_removed_the_global_model_stands():
    match = Match()
    match.round([0, 1])
    expected = match.method._global_model(match.state)
    match.round([0, 1], match.draw([0, 1], length=1000))
    assert match.state.ids.tolist() == []
    dispatch, _ = match.round([4, 5])
    assert torch.equal(dispatch.received(torch.tensor([4, 5])), expected.repeat(2, 1))


def test_a_round_without_uploads_changes_no_pool():
    match = Match()
    match.round([0, 1])
    before = match.state.models.clone()
    match.round([0, 1], {})
    assert torch.equal(match.state.models, before)


def test_participants_who_sent_nothing_leave_the_pools():
    match = Match()
    match.round([0, 1, 2])
    match.round([0, 1, 2], match.draw([0, 2]))
    assert match.state.ids.tolist() == [0, 2]


def test_without_customisation_everybody_receives_the_global_model():
    match = Match({"customise": False})
    match.round([0, 1, 2])
    dispatch, _ = match.round([0, 1, 2, 5])
    assert dispatch.mixing is None
    rows = dispatch.received(torch.tensor([0, 1, 2, 5]))
    assert torch.equal(rows, rows[:1].repeat(4, 1))
    match.round([1, 5])


def test_without_calibration_updates_are_compared_as_sent():
    match = Match({"calibrate": False, "t_norm": 5.0})
    match.round([0, 1, 2])
    sent = match.draw([0, 1, 2, 4])
    sent[4] *= 100
    _, verdict = match.round([0, 1, 2, 4], sent)
    assert list(verdict.removed) == [4]
    assert np.array_equal(match.state.updates[0].numpy(), sent[0])
    match.round([0, 1, 2])


def test_without_detection_the_long_stay_and_only_what_is_no_number_is_refused():
    match = Match({"detect": False})
    sent = match.draw([0, 1, 2])
    sent[1] *= 1000
    sent[2][0] = math.nan
    _, verdict = match.round([0, 1, 2], sent)
    assert verdict.removed == {}
    assert verdict.refused == {2: "not finite"}
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
    with pytest.raises(InputError, match=next(iter(options))):
        make("fedcap", **options)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 9])
def test_a_pool_compared_with_itself_in_stripes_and_mixed_in_blocks(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("STRIPE", 3), ("BLOCK", 16), ("NARROW", 5)):
        monkeypatch.setattr(equations, name, size)
    models = torch.randn(count, 50, generator=torch.Generator().manual_seed(0))
    origin = models.mean(dim=0) / 2
    pool = equations.Rows(models, origin)
    found = equations.cosine_similarities(pool, pool)
    rows = (models - origin).double().numpy()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(found.numpy(), unit @ unit.T, atol=1e-6)
    assert torch.equal(found, found.T)
    weights = torch.rand(4, count, generator=torch.Generator().manual_seed(1))
    mixed = equations.customised_models(weights, models)
    np.testing.assert_allclose(mixed.numpy(), weights.numpy() @ models.numpy(), atol=1e-5)
