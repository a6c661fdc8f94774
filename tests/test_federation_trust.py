"""Changed files, older copies and planted names do not change which keys a federation trusts."""

from __future__ import annotations

import os
import stat
import threading
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from federation_tools import federation, make_site, plan_for
from helpers import refused

pytest.importorskip("flwr")

from fedcap.errors import InputError
from fedcap.federation import keys
from fedcap.federation.audit import Audit, verify
from fedcap.federation.checks import check_operator, check_site
from fedcap.federation.config import INVITATION, Federation, Invitation, Operator, SiteDirectory
from fedcap.federation.flower import apps
from fedcap.federation.flower.nginx import CONFIGURATION
from fedcap.federation.flower.node import run_site
from fedcap.federation.flower.server import run_server
from fedcap.federation.flower.transport import Seal, check_seal
from fedcap.federation.ledger import Ledger, State
from fedcap.federation.messages import Answer, Malformed, Order
from fedcap.federation.plan import Plan, SitePolicy
from fedcap.federation.setup import set_up_operator, set_up_site
from fedcap.federation.status import is_finished
from fedcap.runs import Named

PLAN = plan_for("fedavg")


def operator_in(folder: Path, host: str = "localhost") -> Operator:
    set_up_operator(folder, Federation.of({"host": host}), PLAN)
    return Operator(folder)


def site_of(operator: Operator, folder: Path) -> SiteDirectory:
    invitation = Invitation.read(operator.directory / INVITATION)
    content = {"name": "oslo", "dataset": {"name": "digits"}, "client": "0"}
    return set_up_site(folder, invitation, content).site


def test_an_invitation_has_one_certificate_and_no_text_around_it(tmp_path: Path) -> None:
    operator = operator_in(tmp_path / "op")
    path = operator.directory / INVITATION
    keys.make_authority(tmp_path, "an attacker")
    theirs = (tmp_path / "ca.crt").read_text()
    invitation = Invitation.read(path)
    path.write_text(invitation.model_copy(update={"certificate": f"text\n{invitation.certificate}"}).text())
    assert Invitation.read(path).certificate == operator.authority.read_text()
    path.write_text(invitation.model_copy(update={"certificate": invitation.certificate + theirs}).text())
    with refused("bad-certificate"):
        Invitation.read(path)
    (tmp_path / "ca.crt").write_text(2 * theirs)
    with refused("bad-certificate"):
        keys.certificate_fingerprint(tmp_path / "ca.crt")


@pytest.mark.parametrize("model", ["antigravity: x", "antigravity:", " antigravity : x", "a:b"])
def test_every_name_that_would_be_imported_counts_as_custom_code(model: str) -> None:
    assert "names custom code" in (SitePolicy().objection(PLAN.model_copy(update={"model": model})) or "")
    method = Named(name="fedcap", detector=[{"name": model}])
    assert "names custom code" in (SitePolicy().objection(PLAN.model_copy(update={"method": method})) or "")


def test_a_site_refuses_rounds_beyond_those_it_agreed_to(tmp_path: Path) -> None:
    site = make_site(tmp_path, "0", PLAN)
    order = Order("hello", PLAN.rounds, "n" * 32, PLAN.digest)
    assert site.answer(order).refused is None
    for kind in ("hello", "request", "train", "customise"):
        late = replace(order, kind=kind, round=PLAN.rounds + 1)
        assert site.answer(late).refused == "round 4: the plan has 3"


def test_a_site_named_like_the_fingerprint_of_another_is_not_found_in_its_place(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.json", Audit(tmp_path / "audit.jsonl"))
    ledger.ask("bern-aaaa", "honest", "key")
    ledger.ask("cccc-dddd", "bern-aaaa", "key")
    ledger.ask("eeee-ffff", "bern", "key")
    assert ledger.find("BERN-aaaa").name == "honest"
    with refused("ambiguous-client"):
        ledger.find("bern")


def test_only_the_owner_can_read_both_directories_and_check_reports_other_permissions(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        operator = operator_in(tmp_path / "op")
        site = site_of(operator, tmp_path / "oslo")
    finally:
        os.umask(before)
    for made, check in ((operator, check_operator), (site, check_site)):
        assert stat.S_IMODE(made.directory.stat().st_mode) == 0o700
        made.directory.chmod(0o750)
        said = {one.what: one.message for one in check(made) if not one.ok}  # type: ignore[operator]
        assert said["directory"] == (
            f"others on this machine can read {made.directory}: chmod 700 {made.directory}"
        )


@pytest.mark.parametrize("planted", ["file", "link"])
def test_a_secret_is_not_written_into_a_planted_file(tmp_path: Path, planted: str) -> None:
    partial, theirs = tmp_path / f".key.{os.getpid()}.partial", tmp_path / "theirs"
    theirs.write_text("x" * 50)
    theirs.chmod(0o666)
    if planted == "link":
        partial.symlink_to(theirs)
    else:
        os.link(theirs, partial)
    keys.write_secret(tmp_path / "key", b"secret")
    assert (tmp_path / "key").read_bytes() == b"secret"
    assert stat.S_IMODE((tmp_path / "key").lstat().st_mode) == 0o600
    assert theirs.read_text() == "x" * 50


def test_a_site_without_its_key_does_not_start_with_a_new_one(tmp_path: Path) -> None:
    site = site_of(operator_in(tmp_path / "op"), tmp_path / "oslo")
    site.agree(PLAN)
    (site.directory / "key").unlink()
    with refused("unreadable"):
        run_site(site, print, threading.Event())
    assert not (site.directory / "key").exists()


def test_an_older_copy_of_the_ledger_does_not_readmit_removed_clients(tmp_path: Path) -> None:
    made = federation(tmp_path, {"name": "fedcap", "t_norm": 0.6}, rounds=4, assumed=0.2)
    made.transport.ipm = frozenset({"3"})
    copy = made.ledger.path.read_bytes()
    with made.conductor() as conductor:
        conductor.play()
        made.ledger.remove("4", "left", 1, by="operator")
        conductor.play()
        conductor.play()
    made.ledger.path.write_bytes(copy)
    with made.conductor() as conductor:
        assert {client: made.ledger.find(client).state for client in "34"} == dict.fromkeys(
            "34", State.REMOVED
        )
        assert [change.round for change in made.ledger.find("3").changes][-1] == 1
        assert conductor.play().participants == ["0", "1", "2"]


def turned_round(order: Order, answer: Answer) -> Answer:
    return replace(answer, update=-20 * answer.update) if order.kind == "train" else answer  # type: ignore[operator]


def test_a_readmission_and_a_later_removal_survive_a_restart(tmp_path: Path) -> None:
    made = federation(tmp_path, {"name": "fedcap", "t_norm": 0.6}, rounds=4, assumed=0.2)
    made.transport.twists = {"3": turned_round}
    with made.conductor() as conductor:
        assert list(conductor.play().removed) == ["3"]
    made.ledger.readmit("3", "a mistake", 1)
    with made.conductor() as conductor:
        assert made.ledger.find("3").allowed
        record = conductor.play()
        assert ("3" in record.participants, list(record.removed)) == (True, ["3"])
        assert made.ledger.find("3").state == State.REMOVED


def test_a_newcomer_that_asks_for_a_model_and_never_answers_delays_others_three_times_at_most(
    tmp_path: Path,
) -> None:
    made = federation(tmp_path, clients=("0", "1", "2"), rounds=9)
    with made.conductor() as conductor:
        conductor.play()
        made.join("3")
        made.transport.sites["3"].directory.wish.touch()
        made.transport.twists = {"3": lambda order, answer: answer if order.kind == "hello" else None}
        for _ in range(5):
            conductor.welcome()
        orders = [sent["3"].kind for sent in made.transport.sent if "3" in sent]
    assert orders == ["hello", "request"] * 3
    assert made.ledger.find("3").customised == 0


def test_the_reason_of_a_failure_in_the_client_app_stays_at_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> Any:
        raise OSError(2, "No such file", str(tmp_path / "patients"))

    monkeypatch.setattr(apps, "from_records", fail)
    answer = Answer.from_bytes(apps.answer(None, 1))
    assert answer.refused == "something failed at this site: its log says what"


def test_a_seal_with_an_expired_certificate_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.make_authority(tmp_path, "trial")
    monkeypatch.setattr(keys, "SERVER_DAYS", 0.01)
    keys.make_certificate(tmp_path, ["localhost"])
    order = Order("hello", 1, "n" * 32, "p").to_bytes()
    seal = Seal(tmp_path / "server.key", tmp_path / "server.crt")(order, "me")
    with pytest.raises(Malformed, match="seal"):
        check_seal(order, seal, "me", (tmp_path / "ca.crt").read_bytes())


def test_a_host_with_a_port_is_refused_and_an_ipv6_address_is_accepted(tmp_path: Path) -> None:
    with refused("bad-value"):
        Federation.of({"host": "fl.example.org:9443"})
    operator = operator_in(tmp_path / "op", "::1")
    assert operator.federation.address == "[::1]:9443"
    assert "listen [::]:9443 ssl;" in (operator.directory / CONFIGURATION).read_text()
    assert keys.certificate_problems(operator.certificates, operator.federation.hosts) == []


def test_an_audit_whose_last_line_is_not_json_continues_and_reports_it(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    audit.write("started", by="server")
    text = audit.path.read_text()
    audit.path.write_text(text.replace('"number": 1', '"number": ?'))
    audit.write("stopped", by="server")
    assert "line 1, was changed" in verify(audit.path)[0]


@pytest.mark.parametrize("name", ["evil\x9b31m", "safe\u202etxt", "a\u200bb"])
def test_a_plan_cannot_contain_control_characters(name: str) -> None:
    with refused("bad-value"):
        Plan.of({**PLAN.model_dump(), "name": name})
    plan = PLAN.model_copy(update={"classes": (name, "b\x7f\n")})
    text = plan.text()
    assert all(c.isprintable() or c == "\n" for c in text)
    assert tuple(tomllib.loads(text)["classes"]) == plan.classes


def test_an_older_copy_of_a_run_is_not_finished_even_if_the_audit_says_so(tmp_path: Path) -> None:
    operator = operator_in(tmp_path / "op")
    operator.audit.write("finished", round=PLAN.rounds, by="server")
    assert not is_finished(operator)


def test_a_plan_for_another_version_is_not_served(tmp_path: Path) -> None:
    operator = operator_in(tmp_path / "op")
    path = operator.directory / "plan.toml"
    path.write_text(PLAN.model_copy(update={"bundle": "0" * 64}).text())
    with pytest.raises(InputError) as error:
        run_server(operator, print, threading.Event())
    assert (error.value.code, error.value.field) == ("bundle", "bundle")
    assert "finish the federation with that version" in str(error.value)
