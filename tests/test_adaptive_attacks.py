"""Attacks that know the defence: their geometry by hand, their memory, and their previews."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import refused
from torch import Tensor
from view_tools import after, calibrated, cosine, matrix, seen

import fedcap
from fedcap import attacks, methods
from fedcap.attacks import Attack, Preview, ServerView, View
from fedcap.attacks.base import Geometry, damage, longest
from fedcap.server.uploads import Upload
from fedcap.simulation import Simulation, make_pool
from fedcap.state import Samples

ADAPTIVE: list[Any] = [
    "cuckoo",
    {"name": "cuckoo", "length": "longest"},
    {"name": "cuckoo", "blind": True},
    {"name": "cuckoo", "gang": True},
    "inflate",
    "stealth",
    "frame",
    {"name": "frame", "how": "copy"},
    "steady",
    {"name": "sleeper", "wake": 2},
    "noisy",
    "mimic",
    "worst-of",
    "poisoned-fl",
    "group",
    "half-flipping",
]
TINY = {
    "dataset": {"name": "digits", "samples": 20, "clients": 8},
    "rounds": 3,
    "training": {"epochs": 1},
    "workers": 1,
}


def accuse_longer_than(limit: float, view: View) -> View:
    """Return a view of a server that accuses calibrated rows with a norm over a limit, and averages all."""

    def run_preview(rows: Tensor) -> Preview:
        sent = view.updates.clone()
        sent[view.malicious] = rows
        long = torch.from_numpy(np.linalg.norm(calibrated(view, sent), axis=1) > limit)
        return Preview(long, sent.mean(dim=0).expand_as(sent), torch.ones(len(sent), dtype=torch.bool))

    return replace(view, run_preview=run_preview)


def test_a_cuckoo_lies_at_the_given_cosine_to_its_victim_and_is_as_long():
    view = seen()
    rows = calibrated(view, after(attacks.make("cuckoo", cosine=0.7), view))
    for attacker, victim in ((5, 0), (6, 1), (7, 2)):
        assert cosine(rows[attacker], rows[victim]) == pytest.approx(0.7, abs=1e-4)
        assert np.linalg.norm(rows[attacker]) == pytest.approx(np.linalg.norm(rows[victim]), rel=1e-4)
        mean = view.benign.numpy().mean(axis=0)
        along = rows[victim] / np.linalg.norm(rows[victim])
        assert cosine(rows[attacker] - (rows[attacker] @ along) * along, mean) < -0.8


def test_the_longest_cuckoo_comes_close_to_the_limit_and_stays_under_it():
    view = seen()
    usual = np.linalg.norm(calibrated(view, view.updates), axis=1).max()
    limited = accuse_longer_than(5 * usual, view)
    rows = calibrated(view, after(attacks.make("cuckoo", length="longest"), limited))
    lengths = np.linalg.norm(rows[5:], axis=1)
    assert 0.9 * 5 * usual < lengths.max() <= 5 * usual


def test_a_blind_cuckoo_knows_nothing_of_the_others():
    view = seen()
    updates = view.updates.clone()
    updates[~view.malicious] = 99.0
    received = [99 * torch.ones(1, 400) if row < 5 else view.received(row) for row in range(8)]
    other = replace(
        view,
        updates=updates,
        generator=torch.Generator().manual_seed(0),
        read_received=lambda row: received[row],
        read_server=lambda: pytest.fail("it looked at the server"),
    )
    attack = attacks.make("cuckoo", blind=True)
    assert torch.equal(after(attack, view)[5:], after(attack, other)[5:])


def test_a_gang_has_one_victim():
    view = seen()
    rows = calibrated(view, after(attacks.make("cuckoo", gang=True, cosine=0.7), view))
    assert [cosine(rows[attacker], rows[0]) for attacker in (5, 6, 7)] == pytest.approx([0.7] * 3, abs=1e-4)


@pytest.mark.parametrize("name", ["cuckoo", "inflate", "stealth", "frame", "steady", "worst-of"])
def test_a_request_for_a_first_model_is_honest(name: str):
    view = replace(seen(), request=True)
    assert torch.equal(after(attacks.make(name), view), view.updates)


@pytest.mark.parametrize("shaped", [False, True])
@pytest.mark.parametrize("share", [0.25, 0.73])
def test_noise_lowers_the_cosine_of_colluders_as_computed(share: float, shaped: bool):
    view = seen(columns=40_000)
    plain = after(attacks.make("min-max"), view)[5:].numpy()
    noisy = attacks.make("noisy", attack="min-max", share=share, shaped=shaped)
    rows = after(noisy, view)[5:].numpy()
    along = np.corrcoef(np.abs(rows[0] - plain[0]), np.abs(plain[0]))[0, 1]
    assert along > 0.2 if shaped else abs(along) < 0.05
    assert cosine(rows[0], rows[1]) == pytest.approx(1 / (1 + share**2), abs=0.02)
    assert np.linalg.norm(rows[0]) == pytest.approx(
        np.linalg.norm(plain[0]) * (1 + share**2) ** 0.5, rel=0.02
    )


def test_a_sleeper_is_honest_until_it_wakes_and_in_between():
    attack = attacks.make("sleeper", attack="ipm", wake=3, every=2)
    asleep = [
        round
        for round in range(1, 8)
        if torch.equal(after(attack, view := replace(seen(), round=round)), view.updates)
    ]
    assert asleep == [1, 2, 4, 6]
    view = replace(seen(), round=5)
    assert torch.equal(after(attack, view), after(attacks.make("ipm"), view))


def test_a_wrapper_keeps_what_the_inner_attack_remembers():
    attack = attacks.make("noisy", attack="steady", share=0.0)
    view = seen()
    after(attack, view)
    second = after(attack, replace(view, round=2))
    alone, view = attacks.make("steady"), seen()
    after(alone, view)
    assert torch.equal(second, after(alone, replace(view, round=2)))


def test_frame_copies_the_victims_row_and_may_rotate_victims():
    views = [replace(seen(), round=round) for round in (1, 2, 3)]
    stays = attacks.make("frame", how="copy")
    turns = attacks.make("frame", how="copy", rotate=True)
    for view in views:
        honest = calibrated(view, view.updates)
        for attack, victim in ((stays, 0), (turns, view.round)):
            sent = calibrated(view, after(attack, view))
            np.testing.assert_allclose(sent[5:], [honest[victim]] * 3, atol=1e-5)


def test_a_server_without_a_global_model_compares_updates_as_they_were_sent():
    view = replace(seen(), read_server=ServerView)
    assert torch.equal(Geometry.of(view).rows, view.updates)
    assert torch.equal(after(attacks.make("frame", how="copy"), view)[6], view.updates[0])


def test_dragging_goes_against_the_honest_rows_as_far_as_passes():
    view = seen()
    honest = calibrated(view, view.updates)[:5]
    limit = 3 * np.median(np.linalg.norm(honest, axis=1))
    rows = calibrated(view, after(attacks.make("frame"), accuse_longer_than(limit, view)))
    assert cosine(rows[5], honest.mean(axis=0)) == pytest.approx(-1, abs=1e-4)
    assert 0.9 * limit < np.linalg.norm(rows[5]) <= limit


def test_a_steady_drift_keeps_its_direction_and_follows_what_comes_of_it():
    attack, view = attacks.make("steady"), seen()
    way = after(attack, view)[5]
    assert torch.unique(way.abs().round(decimals=5)).numel() == 1  # a sign vector
    moved = [view.received(row) + 0.1 * way for row in range(8)]
    pushed = replace(view, memory=dict(view.memory), round=2, read_received=lambda row: moved[row])
    held = replace(view, memory=dict(view.memory), round=2)
    harder, softer = after(attack, pushed)[5], after(attack, held)[5]
    torch.testing.assert_close(harder, 1.25 * way)
    torch.testing.assert_close(softer, 0.7 * way)


def test_mimic_copies_the_farthest_out_along_the_principal_direction_and_stays_with_it():
    attack, view = attacks.make("mimic", warm_up=30), seen()
    honest = view.benign.numpy().astype(np.float64)
    honest[3] *= 2.0  # one direction clearly ahead, so that the power iteration ends there
    updates = view.updates.clone()
    updates[:5] = torch.from_numpy(honest).float()
    view = replace(view, updates=updates)
    centred = honest - honest.mean(axis=0)
    principal = np.linalg.svd(centred)[2][0]
    farthest = int(np.abs(centred @ principal).argmax())
    for round in range(1, 31):
        sent = after(attack, replace(view, round=round))
    assert torch.equal(sent[6], updates[farthest])
    other = replace(view, updates=matrix(8, 400, 9), round=31)
    assert torch.equal(after(attack, other)[6], other.updates[farthest])


def test_mimic_waits_for_its_victim_and_learns_nothing_from_requests():
    attack, view = attacks.make("mimic", warm_up=1), seen()
    sent = after(attack, view)
    learnt = dict(view.memory)
    victim = next(row for row in range(5) if torch.equal(sent[5], view.updates[row]))
    here = torch.arange(8) != victim
    absent = replace(
        view,
        updates=matrix(8, 400, 9)[here],
        malicious=view.malicious[here],
        clients=tuple(np.array(view.clients)[here.numpy()]),
        round=2,
    )
    for view_without in (absent, replace(absent, request=True), replace(absent, request=True, round=1)):
        sent = after(attack, view_without)
        assert any(torch.equal(sent[-1], row) for row in view_without.benign)
        assert view_without.memory == learnt
    back = replace(view, updates=matrix(8, 400, 10), round=3)
    assert torch.equal(after(attack, back)[5], back.updates[victim])


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("sleeper", {"attack": "label-flipping"}, "unsuitable-attack"),
        ("sleeper", {"attack": {"name": "noisy", "attack": "malformed"}}, "unsuitable-attack"),
        ("worst-of", {"family": ["lie", "malformed"]}, "unsuitable-attack"),
        ("noisy", {"attack": {"name": "ipm", "claim": 9}}, "unsuitable-attack"),
        ("cuckoo", {"blind": True, "length": "longest"}, "bad-option"),
    ],
)
def test_inner_attacks_that_change_more_than_rows_are_refused(name: str, options: dict[str, Any], code: str):
    with refused(code):
        attacks.make(name, **options)


def test_damage_is_how_far_the_victims_next_models_are_moved_back():
    view = seen()
    all_rows = torch.ones(8, dtype=torch.bool)
    before = Preview(~all_rows, matrix(8, 400, 5), all_rows)
    after = Preview(~all_rows, matrix(8, 400, 6), all_rows)
    served = replace(after, served=torch.arange(8) > 0)
    own = view.updates.double().numpy()
    back = [
        (before.models[k] - after.models[k]).double().numpy() @ own[k] / np.linalg.norm(own[k])
        for k in range(5)
    ]
    assert damage(view, before, after) == pytest.approx(np.mean(back), rel=1e-4)
    assert damage(view, before, served) == pytest.approx(np.mean(back[1:]), rel=1e-4)


def test_the_largest_size_that_passes_is_found():
    view = seen()
    limited = replace(
        view,
        run_preview=lambda rows: Preview(
            view.malicious & (rows[0, 0] > 7.3), view.updates, torch.ones(8, dtype=torch.bool)
        ),
    )
    assert longest(limited, lambda size: torch.full((3, 400), size), 0.5) == pytest.approx(7.3, rel=0.02)
    assert longest(view, lambda size: torch.full((3, 400), size), 0.5) == 64 * 0.5  # nothing is accused


def test_stealth_sends_damaging_rows_that_pass():
    view = seen()
    lengths = np.linalg.norm(calibrated(view, view.updates), axis=1)
    limited = accuse_longer_than(1.5 * lengths.max(), view)
    found = after(attacks.make("stealth"), limited)
    preview = limited.preview(found[5:])
    assert not preview.accused.any()
    assert damage(limited, limited.preview(view.updates[5:]), preview) > 0


def test_stealth_starts_from_its_own_row_at_most_as_long_as_the_median_victims():
    view = seen()
    astray = torch.stack([(1 + 9 * (row > 5)) * view.received(row) for row in range(8)])
    hopeless = accuse_longer_than(0.1, replace(view, read_received=lambda row: astray[row]))
    honest = calibrated(hopeless, view.updates)
    lengths = np.linalg.norm(honest, axis=1)
    usual = np.sort(lengths[:5])[2]
    rows = calibrated(hopeless, after(attacks.make("stealth"), hopeless))
    expected = honest[5:] * np.minimum(1, usual / lengths[5:])[:, None]
    np.testing.assert_allclose(rows[5:], expected, atol=1e-4)


def test_worst_of_sends_the_most_damaging_of_its_family():
    view = seen()
    sent = after(attacks.make("worst-of", family=["lie", "ipm"], sizes=[1.0]), view)
    before = view.preview(view.updates[5:])
    done = {
        name: damage(view, before, view.preview(after(attacks.make(name), view)[5:]))
        for name in ("lie", "ipm")
    }
    assert done["ipm"] > done["lie"]
    torch.testing.assert_close(sent, after(attacks.make("ipm"), view))


def test_poisoned_fl_sends_one_sign_vector_shaped_by_the_last_change_of_the_model():
    attack, view = attacks.make("poisoned-fl", every=50), seen()
    sent, models = [], []
    for round in range(1, 4):
        now = {row: view.received(row) + matrix(1, 400, 20 + round)[0] for row in range(8)}
        view = replace(view, round=round, read_received=now.__getitem__)
        sent.append(after(attack, view)[5].double().numpy())
        models.append(np.mean([now[row][0].double().numpy() for row in (5, 6, 7)], axis=0))
    signs = view.memory["signs"].numpy()
    assert not sent[0].any()
    for before, now in ((0, 1), (1, 2)):
        change, last = models[now] - models[before], sent[before]
        length = np.linalg.norm(change)
        shape = np.abs(change - length * last / max(np.linalg.norm(last), 1e-12))
        expected = 8 * length * shape / np.linalg.norm(shape) * signs
        np.testing.assert_allclose(sent[now], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("follows", "factor"), [(True, 1.0), (False, 0.7)])
def test_poisoned_fl_becomes_softer_while_the_model_does_not_follow(follows: bool, factor: float):
    attack, view = attacks.make("poisoned-fl", every=1), seen()
    after(attack, view)
    way = view.memory["signs"] * (1 if follows else -1)
    view = replace(view, round=2, read_received=lambda row: (seen().received(row)[0] + 0.1 * way)[None])
    sent = after(attack, view)[5]
    assert float(view.memory["scale"]) == pytest.approx(8 * factor)
    assert float(sent.norm()) == pytest.approx(8 * factor * 0.1 * 20, rel=1e-3)


def grouped(view: View) -> tuple[View, np.ndarray]:
    """Return the view with the honest rows 0, 2, 4 in one group and 1, 3 in another, and the honest rows."""
    around = matrix(2, 400, 30)
    rows = torch.stack([around[row % 2] + 0.3 * matrix(1, 400, 40 + row)[0] for row in range(8)])
    updates = Geometry.of(view).updates(rows[5:])
    honest = rows[:5] + view.server.reference - torch.cat([view.received(row) for row in range(5)])
    return replace(view, updates=torch.cat([honest, updates])), rows[:5].double().numpy()


def test_a_group_of_attackers_imitates_the_mean_of_one_group_and_shifts_it():
    view, honest = grouped(seen())
    rows = calibrated(view, after(attacks.make("group", noise=0.0), view))[5:]
    mean = honest[[0, 2, 4]].mean(axis=0)
    wanted = view.updates[[0, 2, 4]].double().numpy().mean(axis=0)
    expected = mean - 0.75 * np.linalg.norm(mean) * wanted / np.linalg.norm(wanted)
    np.testing.assert_allclose(rows, [expected] * 3, atol=1e-4)


def test_a_group_of_attackers_stays_with_its_group_and_sends_no_two_equal_rows():
    view, honest = grouped(seen())
    attack = attacks.make("group", shift=0.0)
    after(attack, view)
    other = torch.tensor([1, 0, 2, 3, 4, 5, 6, 7])  # the first client is now one of the other group
    received = [view.received(row) for row in other.tolist()]
    moved = replace(view, updates=view.updates[other], read_received=received.__getitem__, round=2)
    rows = calibrated(moved, after(attack, moved))[5:]
    assert min(cosine(row, honest[[0, 2, 4]].mean(axis=0)) for row in rows) > 0.99
    assert cosine(rows[0], rows[1]) < 0.995


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_half_flipping_moves_a_share_of_the_labels(share: float):
    samples = Samples(torch.arange(40.0)[:, None], torch.arange(40) % 4)
    poisoned = attacks.make("half-flipping", share=share).poison(samples, 4, torch.Generator().manual_seed(0))
    moved = (poisoned.y - samples.y) % 4
    assert int((moved == 1).sum()) == 40 * share
    assert int((moved == 0).sum()) == 40 - 40 * share
    assert torch.equal(poisoned.x, samples.x)


def test_half_flipping_sends_its_update_at_the_median_norm():
    view = seen()
    sent = after(attacks.make("half-flipping"), view).double().numpy()
    usual = np.median(np.linalg.norm(view.benign.double().numpy(), axis=1))
    for row in (5, 6, 7):
        assert np.linalg.norm(sent[row]) == pytest.approx(usual, rel=1e-5)
        assert cosine(sent[row], view.updates[row].double().numpy()) == pytest.approx(1)


def test_without_a_server_a_preview_uses_the_plain_mean():
    updates = matrix(4, 6)
    view = View(updates, torch.tensor([False, True, False, False]))
    ahead = view.preview(torch.full((1, 6), 9.0))
    expected = (updates.numpy().sum(axis=0) - updates[1].numpy() + 9) / 4
    np.testing.assert_allclose(ahead.models[2], expected, rtol=1e-5)
    assert not ahead.accused.any()


@pytest.mark.parametrize("method", methods.names())
def test_a_preview_is_what_then_happens_and_changes_nothing(method: str):
    simulation = Simulation(fedcap.Experiment(method=method, attack="none", **TINY), make_pool(1))
    simulation.play()
    server = simulation.server
    sent = server.begin(simulation.names)
    size = simulation.layout.size
    if len(sent.pending):
        pending = server.clients.names(sent.pending)
        sent = server.supply([Upload(k, server.round, torch.zeros(size), 1) for k in pending])
    clients = server.clients.names(sent.ids)
    generator = torch.Generator().manual_seed(1)
    uploads = [
        Upload(k, server.round, torch.randn(size, generator=generator), 9, torch.zeros(sent.feedback))
        for k in clients
    ]
    root = None if simulation.data.root is None else torch.randn(size, generator=generator)
    before = {name: tensor.clone() for name, tensor in server.state_dict().items()}
    previewed, models = server.preview(uploads, root)
    assert all(torch.equal(tensor, before[name]) for name, tensor in server.state_dict().items())
    assert server.finish(uploads, root) == previewed
    then = server.models_for(clients)
    assert torch.equal(then.ids, models.ids)
    assert torch.equal(then.models, models.models)


@pytest.mark.parametrize("attack", ADAPTIVE, ids=str)
def test_every_adaptive_attack_runs_against_fedcap(attack: Any):
    result = fedcap.Experiment(method="fedcap", attack=attack, **TINY).run()
    assert result.rounds == 3
    assert not result.diverged


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in methods.names() if name != "fedcap"])
@pytest.mark.parametrize("attack", ADAPTIVE, ids=str)
def test_every_adaptive_attack_runs_against_every_method(attack: Any, method: str):
    assert fedcap.Experiment(method=method, attack=attack, **TINY).run().rounds == 3


class OneRoundMemory(Attack):
    """Remembers a number in one round, and deletes it in the next."""

    def craft(self, view: View) -> Tensor:
        if not view.memory.pop("number", torch.zeros(0)).numel():
            view.memory["number"] = torch.ones(1)
        return view.updates[view.malicious]


def test_a_wrapper_forgets_what_its_inner_attack_deletes() -> None:
    view = seen(memory={"other": torch.zeros(1)})
    for expected in ({"other", "inner.number"}, {"other"}):
        after(attacks.make("sleeper", attack=OneRoundMemory(), wake=1), view)
        assert view.memory.keys() == expected
