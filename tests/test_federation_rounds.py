"""Rounds of a federation: what sites send is checked, rounds may be partial, kills lose none that counts."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federation_tools import Federation, InProcess, federation, plan_for
from helpers import Killed, refused

import fedcap
from fedcap.federation.audit import verify
from fedcap.federation.messages import Answer, Failure, Order
from fedcap.federation.plan import Plan
from fedcap.federation.rounds import Conductor
from fedcap.runs.checkpoint import pack, unpack

OLD_RUNS = Path(__file__).parent / "fixtures" / "old_runs"
"""Directories that version 0.1.0 wrote."""

# --- What sites send


@pytest.fixture(scope="module")
def open_federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Federation, Conductor]]:
    """A federation of four sites whose rounds never end."""
    made = federation(tmp_path_factory.mktemp("open"), "fedavg", ("0", "1", "2", "3"), rounds=1000)
    with made.conductor() as conductor:
        conductor.play()
        yield made, conductor


def update(answer: Answer) -> np.ndarray:
    assert answer.update is not None
    return answer.update


OLD: list[Answer] = []
MALICIOUS: dict[str, tuple[Any, str]] = {
    "NaN": (lambda _, honest: replace(honest, update=update(honest) * np.float32("nan")), "not finite"),
    "infinity": (lambda _, honest: replace(honest, update=update(honest) + np.float32("inf")), "not finite"),
    "a wrong shape": (lambda _, honest: replace(honest, update=update(honest)[:-1]), "shape ["),
    "a matrix": (lambda _, honest: replace(honest, update=update(honest)[None]), "has 2 axes, not 1"),
    "doubles": (lambda _, honest: replace(honest, update=update(honest).astype(float)), "dtype float64"),
    "100 MB": (
        lambda _, honest: replace(honest, update=np.zeros(25_000_000, "f4")),
        "sent 100,000,000 bytes",
    ),
    "nothing in it": (lambda _, honest: replace(honest, update=None), "not a tensor but NoneType"),
    "the answer of before": (lambda *_: OLD[0], "answers another order"),
    "a guessed nonce": (lambda _, honest: replace(honest, nonce="0" * 32), "answers another order"),
    "an old round": (lambda order, honest: replace(honest, round=order.round - 1), "this is round"),
    "no samples": (lambda _, honest: replace(honest, samples=0), "not positive and finite"),
    "samples as text": (lambda _, honest: replace(honest, samples="many"), "samples is not a whole number"),
    "endless samples": (lambda _, honest: replace(honest, samples=10**40), "samples is not a whole number"),
    "a NaN as feedback": (lambda _, honest: replace(honest, feedback=(float("nan"),)), "not a finite number"),
    "no answer": (lambda *_: None, "did not answer within 5 s"),
    "an error": (lambda *_: Failure("its process died"), "its process died"),
    "a refusal": (
        lambda _, honest: replace(honest, refused="no\nthank" + " you" * 10**6),
        "refuses: no thank you",
    ),
}


@pytest.mark.parametrize("what", MALICIOUS)
def test_a_malicious_answer_is_refused_and_recorded_and_the_round_continues(
    open_federation: tuple[Federation, Conductor], what: str
) -> None:
    made, conductor = open_federation
    twist, said = MALICIOUS[what]
    OLD[:] = [Answer(made.transport.sent[-1]["3"].nonce, conductor.server.round, np.zeros(10, np.float32), 9)]
    before = conductor.server.inspect().global_model.clone()
    made.transport.twists = {"3": twist}
    record = conductor.play()
    assert record is not None
    assert list(record.refused) == ["3"]
    assert said in record.refused["3"]
    assert len(record.refused["3"]) < 600
    event = made.events("refused")[-1]
    assert (event.client, event.round) == ("3", record.round)
    assert said in event.reason
    assert list(record.accuracy.clients) == ["0", "1", "2"]
    assert not torch.equal(conductor.server.inspect().global_model, before)
    assert made.ledger.entries()["3"].allowed  # it may come again: one bad answer is no proof


def test_a_claim_to_a_billion_samples_is_bounded(open_federation: tuple[Federation, Conductor]) -> None:
    made, conductor = open_federation
    made.transport.twists = {"3": lambda _, honest: replace(honest, samples=10**9)}
    record = conductor.play()
    assert record.bounded == {"3": "claims 1000000000 samples, counted as 210"}
    assert [event.client for event in made.events("bounded")] == ["3"]
    assert not record.refused


def test_accuracy_is_what_sites_report_and_no_site_weighs_more_than_ten_medians(
    open_federation: tuple[Federation, Conductor],
) -> None:
    made, conductor = open_federation
    reported = {"0": (10, 9, 8), "1": (10, 5, 10), "2": (10, 0, 0), "3": (10**9, 10**9, 10**9)}

    def report(client: str, honest: Answer) -> Answer:
        tested, shared, personal = reported[client]
        return replace(honest, tested=tested, shared_correct=shared, personal_correct=personal)

    made.transport.twists = {
        client: lambda _, honest, client=client: report(client, honest) for client in reported
    }
    found = conductor.play().accuracy
    assert found.shared == pytest.approx((90 + 50 + 0 + 10 * 100) / 13)
    assert found.personal == pytest.approx((80 + 100 + 0 + 10 * 100) / 13)
    assert (found.clients["1"].shared, found.clients["1"].personal) == (50.0, 100.0)
    reported["3"] = (10, 11, 0)  # more right than tested
    assert list(conductor.play().accuracy.clients) == ["0", "1", "2"]
    reported |= dict.fromkeys("012", (0, 0, 0))
    assert conductor.play().accuracy is None
    made.transport.twists = {}


# --- Partial rounds, and who takes part


def test_a_round_with_too_few_answers_does_not_count_and_is_played_again(tmp_path: Path) -> None:
    made = federation(tmp_path / "a", "fedcap", ("0", "1", "2"), least=2)
    whole = federation(tmp_path / "b", "fedcap", ("0", "1", "2"), least=2)
    with made.conductor() as conductor, whole.conductor() as other:
        conductor.play(), other.play()
        made.transport.twists = {"0": lambda *_: None, "2": lambda *_: Failure("it is tired")}
        assert conductor.play() is None
        assert (len(conductor.history), conductor.server.round) == (1, 1)
        (event,) = made.events("given-up")
        assert (event.round, event.reason) == (2, "1 of 3 sites answered, 2 are needed")
        assert event.facts["failed"] == {"0": "did not answer within 5 s", "2": "it is tired"}
        made.transport.twists = {}
        for _ in range(2):
            assert conductor.play().round == other.play().round
        for name, tensor in other.server.state_dict().items():
            assert torch.equal(conductor.server.state_dict()[name], tensor), name
    for client in "012":  # no site has trained twice
        assert torch.equal(made.state(client).kept["personal"], whole.state(client).kept["personal"])
    assert [record.round for record in fedcap.read(made.run).rounds] == [1, 2, 3]


def test_fewer_sites_than_are_needed_are_waited_for(tmp_path: Path) -> None:
    made = federation(tmp_path, "fedavg", ("0",), least=2, rounds=1)
    with made.conductor() as conductor:
        assert conductor.play() is None
        assert made.transport.sent == []
        conductor.run(lambda _: made.join("1"), pause=0)
    assert conductor.history[0].participants == ["0", "1"]
    assert [event.event for event in made.audit.events()][-2:] == ["finished", "stopped"]


def test_each_site_online_is_informed_once_that_all_rounds_are_done(tmp_path: Path) -> None:
    made = federation(tmp_path, "fedavg", ("0", "1"), rounds=1)
    made.join("2")
    made.ledger.remove("2", "left", by="operator")
    sites = made.transport.sites

    def informed() -> list[list[str]]:
        return [
            list(orders)
            for orders in made.transport.sent
            if {o.kind for o in orders.values()} == {"finished"}
        ]

    with made.conductor() as conductor:
        conductor.run()
        assert informed() == [["0", "1"]]
        assert [site.is_finished for site in sites.values()] == [True, True, False]
        assert [event.event for event in sites["0"].directory.audit.events()][-1] == "finished"
        away = sites.pop("1")
        conductor.inform()
        made.join("3")
        conductor.inform()
        sites["1"] = away
        conductor.inform()
        assert informed() == [["0", "1"], ["3"], ["1"]]


def test_a_site_that_trains_again_is_not_finished(tmp_path: Path) -> None:
    made = federation(tmp_path, "fedavg", ("0", "1"))
    with made.conductor() as conductor:
        conductor.inform()
        assert made.transport.sites["0"].is_finished
        conductor.play()
    assert not made.transport.sites["0"].is_finished


def test_a_client_needs_approval_and_a_removed_client_stays_out_until_it_is_readmitted(
    tmp_path: Path,
) -> None:
    made = federation(tmp_path, "fedcap", ("0", "1", "2"), rounds=9)
    made.ledger.ask("3", "site-3", "key")
    made.transport.sites["3"] = made.transport.sites["2"]
    with made.conductor() as conductor:
        assert conductor.play().participants == ["0", "1", "2"]
        made.ledger.remove("1", "its data were wrong", by="operator")
        made.join("3")  # approved, and with samples of its own
        record = conductor.play()
        assert (record.participants, record.asked) == (["0", "2", "3"], ["3"])
        assert str(record.removed["1"]) == "its data were wrong"
        found = conductor.server.inspect()
        assert conductor.server.clients.names(found.ids) == ["0", "2", "3"]
    with made.conductor() as conductor:  # a removed one that returns stays out
        assert conductor.play().participants == ["0", "2", "3"]
        made.ledger.readmit("1", "mended")
        record = conductor.play()
        assert (record.participants, record.asked) == (["0", "1", "2", "3"], ["1"])
        assert record.notes == ["1 was readmitted: mended"]
    assert {entry.client: str(entry.state) for entry in made.ledger.entries().values()} == dict.fromkeys(
        "0123", "active"
    )


def test_a_suspected_client_is_on_probation_until_an_update_counts(tmp_path: Path) -> None:
    method = {"name": "fedavg", "detectors": [{"name": "norm", "limit": 1.0}], "policy": {"strikes": 3}}
    made = federation(tmp_path, method, ("0", "1", "2"))
    states = []
    with made.conductor() as conductor:
        for scale in (1.0, 1000.0, 1.0):
            made.transport.twists = {
                "2": lambda _, honest, by=scale: replace(honest, update=update(honest) * np.float32(by))
            }
            assert conductor.play() is not None
            states.append(str(made.ledger.find("2").state))
    assert states == ["active", "probation", "active"]
    assert [event.event for event in made.audit.events() if event.client == "2"][-3:] == [
        "probation",
        "refused",
        "cleared",
    ]


def test_a_method_with_a_root_set_is_refused_without_one(tmp_path: Path) -> None:
    with refused("no-root"):
        Federation(tmp_path, plan_for("fltrust")).conductor()


def test_a_plan_continues_with_more_rounds_but_not_with_another_method(tmp_path: Path) -> None:
    made = federation(tmp_path, "fedavg", ("0", "1"), rounds=1)
    with made.conductor() as conductor:
        conductor.run()
    assert fedcap.read(made.run).result.rounds == 1
    for more in (2, 3):
        made.plan = plan_for("fedavg", rounds=more, deadline=more)
        made.join("0", "1")
        with made.conductor() as conductor:
            assert len(conductor.history) == more - 1
            conductor.run()
        assert fedcap.read(made.run).result.rounds == more
    made.plan = plan_for("fedavg", rounds=2)
    with refused("fewer-rounds"), made.conductor():
        pass
    made.plan = plan_for("ditto", rounds=3)
    with refused("other-course"), made.conductor():
        pass


def test_the_state_of_an_older_version_is_restored_and_its_federation_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(OLD_RUNS)
    shutil.copytree(OLD_RUNS / "federation" / "operator", tmp_path, dirs_exist_ok=True)
    made = Federation(tmp_path, Plan.read(tmp_path / "plan.toml").model_copy(update={"rounds": 4}))
    made.join(*"0124", code=["old_network:linear"])
    with made.conductor() as conductor:
        assert (len(conductor.history), list(conductor.server.removed)) == (3, ["3"])
        record = conductor.play()
    assert (record.round, record.participants, record.refused) == (4, list("0124"), {})


@pytest.mark.parametrize(
    ("change", "code"),
    [("entry", "older-state"), ("course", "damaged-state"), ("bytes", "damaged-state")],
)
def test_a_state_that_cannot_be_restored_is_refused_with_what_to_do(
    tmp_path: Path, change: str, code: str
) -> None:
    made = federation(tmp_path, "fedavg", ("0", "1"))
    with made.conductor() as conductor:
        conductor.play()
    path = made.run / "checkpoint.safetensors"
    about, tensors = unpack(path)
    if change == "entry":
        tensors["server.state.renamed"] = tensors.pop("server.state.model")
    path.write_bytes(pack(replace(about, course="x") if change == "course" else about, tensors))
    if change == "bytes":
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(fedcap.InputError) as error, made.conductor():
        pass
    assert (error.value.code, error.value.field) == (code, str(path))
    remedy = (
        f"finish the federation with fedcap {fedcap.__version__}" if change == "entry" else "from a backup"
    )
    assert str(error.value).endswith(remedy)


def test_two_conductors_do_not_share_a_directory(tmp_path: Path) -> None:
    made = federation(tmp_path, "fedavg", ("0", "1"))
    with (
        made.conductor(),
        pytest.raises(fedcap.InputError, match="another process is running"),
        made.conductor(),
    ):
        pass


# --- Kills


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """Sites that several federations use, one after the other, each from the start."""
    return federation(tmp_path_factory.mktemp("sites"), KILL_METHOD, ("0", "1", "2"), rounds=2)


KILL_METHOD = {"name": "fedcap", "t_norm": 0.6}


def begin(sites: Federation, folder: Path) -> Federation:
    for site in sites.transport.sites.values():
        shutil.rmtree(site.directory.state, ignore_errors=True)
    shipped = InProcess(sites.transport.sites, ipm=frozenset({"2"}))
    made = Federation(folder, sites.plan, shipped)
    for client in "012":
        made.ledger.ask(client, f"site-{client}", "key")
        made.ledger.approve(client)
    return made


class Power:
    """Fails in the nth write of the operator's side, and in all after it; half-written bytes stay."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._folder, self._fsync = folder, os.fsync
        self.left = 0
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if self.left and path.is_relative_to(self._folder):
            self.left -= 1
            if not self.left:
                self.left = 1  # whatever is tried now fails too
                os.ftruncate(descriptor, max(0, os.fstat(descriptor).st_size - 7))
                raise Killed
        self._fsync(descriptor)


def left(made: Federation) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]], dict[str, str]]:
    lines = (made.run / "rounds.jsonl").read_text().splitlines()
    rounds = [json.loads(line) | {"seconds": None, "checksum": None} for line in lines]
    states = {entry.client: str(entry.state) for entry in made.ledger.entries().values()}
    return unpack(made.run / "checkpoint.safetensors")[1], rounds, states


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_any_write_loses_no_round_that_counts(
    sites: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    whole = begin(sites, tmp_path / "whole")
    with whole.conductor() as conductor:
        conductor.run()
    tensors, rounds, states = left(whole)
    assert states == {"0": "active", "1": "active", "2": "removed"}
    power = Power(monkeypatch, tmp_path)
    for write in range(2, 100, step):
        made = begin(sites, tmp_path / str(write))
        power.left = write
        conductor = made.conductor()
        counted: list[int] = []
        try:
            conductor.__enter__()
            conductor.run(lambda _: counted.append(len(conductor.history)), pause=0)  # noqa: B023
            reached = False
        except Killed:
            reached = True
        power.left = 0
        conductor._directory.__exit__()  # all that a process which is gone still does
        if not reached:
            break
        with made.conductor() as again:
            assert len(again.history) >= max(counted, default=0)
            again.run()
        tensors2, rounds2, states2 = left(made)
        assert rounds2 == rounds, write
        assert states2 == states, write
        assert all(torch.equal(tensors2[name], tensor) for name, tensor in tensors.items()), write
        assert verify(made.audit.path) == [], write
        assert [event.round for event in made.events("round")] == [1, 2], write
        assert fedcap.read(made.run).result.rounds == 2
    assert write > 15


def test_a_round_that_cannot_be_written_is_not_played_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = federation(tmp_path, "fedavg", ("0", "1"))
    power = Power(monkeypatch, tmp_path / "run")
    with made.conductor() as conductor:
        power.left = 2
        with pytest.raises(Killed):
            conductor.play()
        power.left = 0
        with pytest.raises(RuntimeError, match="the last round could not be written"):
            conductor.play()
    with made.conductor() as conductor:
        assert conductor.play().round == 1
    assert len(fedcap.read(made.run).rounds) == 1


def test_late_replies_to_a_killed_server_are_refused(tmp_path: Path) -> None:
    made = federation(tmp_path, "fedavg", ("0", "1", "2"))
    late: list[Answer] = []

    def die(_: Order, honest: Answer) -> Answer:
        late.append(honest)
        raise Killed

    made.transport.twists = {"2": die}
    with pytest.raises(Killed), made.conductor() as conductor:
        conductor.play()
    made.transport.twists = {"2": lambda *_: late[0]}
    with made.conductor() as conductor:
        assert conductor.play().refused == {"2": "answers another order than the one it was sent"}
    assert [event.event for event in made.audit.events()].count("started") == 2
