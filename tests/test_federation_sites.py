"""A site of a federation: its plan and its messages, what it agrees to, its data, and what it keeps."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federation_tools import DATA, federation, make_site, plan_for
from helpers import refused

import fedcap
from fedcap.federation.build import Built
from fedcap.federation.messages import Answer, Malformed, Order, decode, encode
from fedcap.federation.plan import Plan, SitePolicy
from fedcap.federation.site import Site
from fedcap.federation.site_data import load_root, load_site_data

PLAN = plan_for("fedcap")


def order_for(plan: Plan, number: int = 1, kind: Any = "train", seed: int = 0) -> Order:
    models = Built.of(plan).weights + seed * 0.01
    return Order(kind, number, f"nonce {number}", plan.digest, models[None].numpy())


# --- Plans and messages


def test_a_plan_survives_its_file_and_another_plan_has_another_digest(tmp_path: Path) -> None:
    plan = plan_for({"name": "fedrod", "rule": {"name": "bucketing", "rule": "median"}}, bundle="0" * 64)
    (tmp_path / "plan.toml").write_text(plan.text())
    again = Plan.read(tmp_path / "plan.toml")
    assert (again, again.digest) == (plan, plan.digest)
    later = plan.model_copy(update={"rounds": 99, "deadline": 1.0, "bundle": None})
    assert later.digest != plan.digest
    assert later.course == plan.course
    for change in ({"seed": 1}, {"participation": 0.5}, {"training": {**plan.training, "lr": 0.2}}):
        assert plan.model_copy(update=change).course != plan.course


@pytest.mark.parametrize(
    "change",
    [{"rounds": 0}, {"assumed": 0.5}, {"surprise": 1}, {"name": "two\nlines"}, {"deadline": 1e9}],
)
def test_a_mistake_in_a_plan_is_reported_with_its_field(change: dict[str, Any]) -> None:
    with pytest.raises(fedcap.InputError) as error:
        Plan.of({**PLAN.model_dump(mode="json", exclude_none=True), **change})
    assert error.value.code == ("unknown-setting" if "surprise" in change else "bad-value")
    assert error.value.field == next(iter(change))
    assert str(error.value).startswith(f"plan: {error.value.field} ")
    assert "\n" not in str(error.value)


GOOD = decode(Answer("n", 3, np.ones(4, np.float32), 10).to_bytes())


@pytest.mark.parametrize(
    ("arrays", "config"),
    [
        ({}, {"nonce": 5}),
        ({}, {"nonce": None}),
        ({}, {"round": -1}),
        ({}, {"round": True}),
        ({}, {"round": 1.0}),
        ({}, {"samples": float("nan")}),
        ({}, {"feedback": "text"}),
        ({}, {"feedback": [1.0] * 10_001}),
        ({}, {"feedback": [None]}),
        ({}, {"feedback": [10**400]}),
        ({}, {"seconds": 10**400}),
        ({}, {"seconds": float("inf")}),
        ({}, {"tested": "all"}),
        ({"update": np.ones((2, 2), np.float32)}, {}),
        ({"update": np.ones(4, np.int64)}, {}),
    ],
)
def test_every_other_content_of_an_answer_is_malformed(arrays: Any, config: Any) -> None:
    with pytest.raises(Malformed) as error:
        Answer.from_bytes(encode({**GOOD[0], **arrays}, {**GOOD[1], **config}))
    assert "\n" not in str(error.value)


# --- What a site agrees to


def test_without_a_policy_a_site_agrees_to_nothing(tmp_path: Path) -> None:
    site = make_site(tmp_path, "0", PLAN)
    (site.directory.directory / "policy.toml").unlink()
    assert site.answer(order_for(PLAN)).refused == "something failed at this site: its own audit says what"
    event = list(site.directory.audit.events())[-1]
    assert event.reason == "there is no policy.toml: without it the site agrees to nothing"


def test_a_policy_survives_its_file(tmp_path: Path) -> None:
    changed = SitePolicy(methods=("fedcap", "ditto"), code=("mine:Net",), epochs=3, accuracy=False)
    for policy in (SitePolicy(), changed):
        (tmp_path / "policy.toml").write_text(policy.text())
        assert SitePolicy.read(tmp_path / "policy.toml") == policy
    (tmp_path / "wrong.toml").write_text("epochs = -1")
    with refused("bad-value"):
        SitePolicy.read(tmp_path / "wrong.toml")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"methods": ["ditto"]}, "method fedcap"),
        ({"weights": 100}, "weights: this site's policy allows at most 100"),
        ({"epochs": 0}, "1 epochs a round"),
        ({"rounds": 2}, "3 rounds"),
        ({"bytes": 1000}, "at most 1,000"),
    ],
)
def test_an_order_beyond_the_policy_is_refused(tmp_path: Path, policy: dict[str, Any], said: str) -> None:
    site = make_site(tmp_path, "0", PLAN, **policy)
    answer = site.answer(order_for(PLAN))
    assert said in (answer.refused or "")
    assert (answer.update, answer.nonce, answer.round) == (None, "nonce 1", 1)
    (event,) = [event for event in site.directory.audit.events() if event.event == "refused"]
    assert event.reason == answer.refused
    assert not site.directory.state.exists()


@pytest.mark.parametrize(
    "method",
    [
        {"name": "os:abort"},
        {"name": "fedavg", "rule": "os:abort"},
        {"name": "fedavg", "detectors": ["os:abort"]},
    ],
)
def test_a_plan_cannot_make_a_site_run_code_that_its_policy_does_not_name(method: dict[str, Any]) -> None:
    plan = PLAN.model_copy(update={"method": type(PLAN.method)(**method)})
    assert "os:abort" in (SitePolicy().objection(plan) or "")
    assert SitePolicy(code=("os:abort",)).objection(plan) is None
    other = PLAN.model_copy(update={"model": "os:abort"})
    assert "os:abort" in (SitePolicy().objection(other) or "")


def test_a_plan_without_a_number_of_epochs_is_refused() -> None:
    plan = PLAN.model_copy(update={"training": {"lr": 0.1}})
    assert "number of epochs" in (SitePolicy().objection(plan) or "")
    assert SitePolicy(methods=("FedCAP",)).objection(PLAN) is None


def test_a_site_answers_only_to_unchanged_plans_that_it_has_agreed_to(tmp_path: Path) -> None:
    site = make_site(tmp_path, "0", PLAN)
    other = plan_for("fedcap", rounds=9)
    assert (
        site.answer(order_for(other)).refused == f"this site has not agreed to the plan {other.digest[:12]}"
    )
    (path,) = site.directory.agreed.iterdir()
    path.write_text(path.read_text().replace("rounds = 3", "rounds = 9"))  # an agreed plan is edited
    for plan in (PLAN, other):
        assert "has not agreed" in (site.answer(order_for(plan)).refused or "")


def test_a_federation_continues_without_a_site_that_refuses(tmp_path: Path) -> None:
    made = federation(tmp_path, "fedavg", ("0", "1"))
    made.join("2", methods=["fedcap"])
    with made.conductor() as conductor:
        record = conductor.play()
    assert record.refused == {"2": "refuses: method fedavg: this site's policy allows fedcap"}
    assert str(made.ledger.find("2").state) == "approved"  # it never took part


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (np.full((1, PLAN.weights), np.nan, np.float32), "the models of the order are not finite"),
        (np.zeros((1, 7), np.float32), f"models of 7 weights: the plan's have {PLAN.weights:,}"),
        (np.zeros((0, 0), np.float32), "something failed at this site: its own audit says what"),
    ],
)
def test_a_site_does_not_train_on_invalid_models(tmp_path: Path, models: np.ndarray, said: str) -> None:
    site = make_site(tmp_path, "0", PLAN)
    assert site.answer(order_for(PLAN)).refused is None
    before = site.prepare(PLAN).states.last()
    assert site.answer(replace(order_for(PLAN, 2), models=models)).refused == said
    after = site.prepare(PLAN).states.last()
    assert after.round == 1
    assert torch.equal(after.kept["personal"], before.kept["personal"])


def test_the_reason_of_a_failure_at_a_site_stays_at_the_site(tmp_path: Path) -> None:
    site = make_site(tmp_path, "0", PLAN, {"name": "npz", "path": str(tmp_path / "secret.npz")})
    answer = site.answer(order_for(PLAN))
    assert answer.refused == "something failed at this site: its own audit says what"
    assert "secret.npz" in [event.reason for event in site.directory.audit.events()][-1]


def test_a_site_may_take_part_without_reporting_its_accuracy(tmp_path: Path) -> None:
    made = federation(tmp_path, "fedavg", ("0",))
    made.join("1", accuracy=False)
    with made.conductor() as conductor:
        assert list(conductor.play().accuracy.clients) == ["0"]


# --- Its data


def save(path: Path, y: list[str]) -> dict[str, Any]:
    x = np.random.default_rng(0).normal(size=(len(y), 4)).astype(np.float32) * 9 + 5
    np.savez(path, x=x, y=np.array(y))
    return {"name": str(path), "standardise": True}


def test_labels_are_matched_to_the_plans_classes_by_name(tmp_path: Path) -> None:
    plan = PLAN.model_copy(update={"classes": ("ill", "well", "unsure"), "shape": (4,)})
    table = save(tmp_path / "mine.npz", ["well", "unsure"] * 20)
    found = load_site_data(table, None, 0, plan)
    assert (len(found.local.train), len(found.local.test)) == (30, 10)
    whole = torch.cat([found.local.train.y, found.local.test.y])
    assert torch.bincount(whole).tolist() == [0, 20, 20]
    assert found.scaling is not None
    assert torch.allclose(found.local.train.x.mean(dim=0), torch.zeros(4), atol=1e-5)
    with refused("data"):
        load_site_data(save(tmp_path / "other.npz", ["well", "dead"] * 20), None, 0, plan)
    with refused("data"):
        load_site_data(table, None, 0, PLAN)
    with refused("unknown-client"):
        load_site_data(DATA, "7", 0, PLAN)


def test_a_root_set_has_the_number_of_samples_that_the_method_asks_for() -> None:
    plan = plan_for("fltrust")
    root = load_root({"name": "digits"}, 100, plan)
    assert torch.bincount(root.y).tolist() == [10] * 10
    assert len(load_root({"name": "digits"}, 10**6, plan)) == 1797


# --- What it keeps


def test_a_restarted_site_continues_from_its_disk_with_the_same_bits(tmp_path: Path) -> None:
    site, twin = (make_site(tmp_path / name, "0", PLAN) for name in ("a", "b"))
    for number in (1, 2, 3):
        expected = twin.answer(order_for(PLAN, number, seed=number))
        found = Site(site.directory, "0").answer(order_for(PLAN, number, seed=number))  # as if just started
        assert np.array_equal(found.update, expected.update)
    assert site.prepare(PLAN).states.rounds() == [2, 3]
    for name, tensor in twin.prepare(PLAN).states.last().kept.items():
        assert torch.equal(site.prepare(PLAN).states.last().kept[name], tensor)


def test_a_site_killed_during_a_round_keeps_the_state_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, twin = (make_site(tmp_path / name, "0", PLAN) for name in ("a", "b"))
    for each in (site, twin):
        each.answer(order_for(PLAN, 1))
    fsync = os.fsync

    def killed(descriptor: int) -> None:
        if "round-000002" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise KeyboardInterrupt  # what a kill leaves of the write
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        site.answer(order_for(PLAN, 2))
    monkeypatch.undo()
    back = Site(site.directory, "0")
    assert back.prepare(PLAN).states.last().round == 1
    assert np.array_equal(back.answer(order_for(PLAN, 2)).update, twin.answer(order_for(PLAN, 2)).update)


def test_a_round_played_again_starts_from_the_state_before_it(tmp_path: Path) -> None:
    plan = plan_for("fedcap", rounds=6)
    site = make_site(tmp_path, "0", plan)
    for number in (1, 1, 5, 5, 6, 6):
        answers = [site.answer(order_for(plan, number)).update for _ in range(2)]
        assert np.array_equal(*answers)
    states = site.prepare(plan).states
    assert states.rounds() == [5, 6]
    assert states.before(1).kept == {}  # a federation from the start
    assert states.before(3).round == 5  # the server went back further than the site can


def test_a_damaged_state_is_reported_and_not_used(tmp_path: Path) -> None:
    site = make_site(tmp_path, "0", PLAN)
    site.answer(order_for(PLAN, 1))
    (path,) = site.prepare(PLAN).states.path.iterdir()
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    assert site.answer(order_for(PLAN, 2)).refused is not None
    said = [event.reason for event in site.directory.audit.events()][-1]
    assert said.endswith(
        "is damaged: its checksum does not match; move it away to go on from the round before"
    )
    path.unlink()
    assert site.answer(order_for(PLAN, 2)).refused is None
