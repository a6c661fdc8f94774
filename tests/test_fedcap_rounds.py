"""FedCAP's server, round by round, against dictionaries of rows and NumPy in double precision."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from helpers import end_round, refused
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
    norms: dict[int, float] = field(default_factory=dict)
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
        norms = self.norms = {k: math.sqrt(sum(float(x) ** 2 for x in d)) for k, d in updates.items()}
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
            assert (sent.mixing is None) == (not customised)
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
        reasons = [reason.sentence for reason in found.verdict.removed.values()]
        assert all(sentence == "not finite" or " over " in sentence for sentence in reasons)
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
        norms = [self.reference.norms[k] for k in arrived]
        np.testing.assert_allclose(found.view.norms.numpy(), norms, rtol=1e-9, atol=1e-12)
        assert out or not found.verdict.removed
        return found


@dataclass
class Play:
    """A round: who takes part, by how much updates are multiplied, and who sends nothing."""

    ids: list[int]
    scaled: dict[int, float] = field(default_factory=dict)
    silent: tuple[int, ...] = ()


FOUR, HUGE = [0, 1, 2, 3], 1000.0
SCENARIOS: dict[str, tuple[dict[str, object], list[Play], list[int]]] = {
    "the same clients, alpha 0": ({"alpha": 0.0, "phi": 0.2}, [Play([0, 2, 3, 7])] * 3, []),
    "the same clients, alpha 10": ({"alpha": 10.0, "phi": 0.2}, [Play([0, 2, 3, 7])] * 3, []),
    "newcomers": ({}, [Play([1, 4, 6]), Play([0, 4, 5, 6, 9]), Play([1, 4, 9])], []),
    "over the limit": ({"t_norm": 5.0}, [Play(FOUR), Play(FOUR, {2: 100.0}), Play([0, 1, 3])], [2]),
    "NaN": ({}, [Play(FOUR), Play(FOUR, {1: math.nan}), Play([0, 2])], [1]),
    "infinity": ({}, [Play(FOUR), Play(FOUR, {1: -math.inf}), Play([0, 2])], [1]),
    "infinity under any limit": ({"t_norm": 1e300}, [Play(FOUR, {1: math.inf}), Play([0, 2])], [1]),
    "a pool of one client": ({}, [Play([0, 1, 2], {0: HUGE, 2: HUGE}), Play([1, 3])], [0, 2]),
    "no upload counts": (
        {},
        [Play(FOUR), Play([0, 1, 2], dict.fromkeys([0, 1, 2], HUGE)), Play([3])],
        [0, 1, 2],
    ),
    "all clients are removed": ({}, [Play([0, 1]), Play([0, 1], {0: HUGE, 1: HUGE}), Play([4, 5])], [0, 1]),
    "no uploads": ({}, [Play([0, 1]), Play([0, 1], silent=(0, 1)), Play([0, 1])], []),
    "one client sends nothing": ({}, [Play([0, 1, 2]), Play([0, 1, 2], silent=(1,)), Play([0, 2])], []),
    "without customisation": (
        {"customise": False},
        [Play([0, 1, 2]), Play([0, 1, 2, 5]), Play([1, 5])],
        [],
    ),
    "without calibration": (
        {"calibrate": False, "t_norm": 5.0},
        [Play([0, 1, 2]), Play([0, 1, 2, 4], {4: 100.0}), Play([0, 1, 2])],
        [4],
    ),
    "without detection": (
        {"detect": False},
        [Play([0, 1, 2], {1: HUGE, 2: math.nan}), Play([0, 1, 2])],
        [],
    ),
    "last-layer similarity": (
        {"similarity": "last-layer"},
        [Play([0, 1, 2]), Play([0, 1, 2, 5]), Play([1, 5, 6])],
        [],
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_rounds_follow_the_paper(name: str):
    options, plays, removed = SCENARIOS[name]
    assert LAYOUT.last_layer == slice(*HEAD)
    match = Match(options, compared=HEAD if "similarity" in options else (0, SIZE))
    found = []
    for play in plays:
        updates = {k: row * play.scaled.get(k, 1.0) for k, row in match.draw(play.ids).items()}
        for client in play.silent:
            del updates[client]
        found += match.round(play.ids, updates).verdict.removed
        assert match.state.models.isfinite().all()
    assert found == removed


def test_a_calibrated_norm_of_exactly_the_threshold_stays():
    method = make("fedcap", t_norm=10.0)
    state = method.init(torch.zeros(SIZE), LAYOUT)
    updates = torch.zeros(2, SIZE)
    updates[0, :2] = torch.tensor([6.0, 8.0])
    updates[1, :2] = torch.tensor([6.0, 8.001])
    found = end_round(method, state, Batch(torch.tensor([0, 1]), updates, torch.ones(2)))
    assert found.state.ids.tolist() == [0]
    assert list(found.verdict.removed) == [1]


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


@pytest.mark.parametrize("rows", [[0, 1, 2], [0, 2], [1], []])
def test_models_made_for_one_client_each_are_taken_without_a_copy(rows: list[int]):
    models, ids = torch.randn(3, SIZE), torch.tensor([4, 7, 9])
    expected = models[rows]
    sent = Sent(ids, models, torch.arange(3)[:, None], is_fresh=True)
    taken = sent.take_models(ids[rows])
    assert torch.equal(taken, expected)
    assert taken.untyped_storage().data_ptr() == models.untyped_storage().data_ptr()
    assert not len(sent.models)


def test_models_that_others_use_too_are_copied():
    models, ids = torch.randn(3, SIZE), torch.arange(3)
    sent = Sent(ids, models, ids[:, None])
    before = models.clone()
    taken = sent.take_models(torch.tensor([0, 2]))
    assert torch.equal(taken, models[[0, 2]])
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
