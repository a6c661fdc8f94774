"""`fedcap federate check`: each possible mistake is reported with what to do."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedcap.federation.build import propose
from fedcap.federation.checks import check_operator, check_site
from fedcap.federation.config import INVITATION, Federation, Invitation, Operator, SiteDirectory, held
from fedcap.federation.flower.compat import bundle_digest
from fedcap.federation.flower.nginx import find_nginx
from fedcap.federation.flower.process import free_port
from fedcap.federation.keys import JoinRequest
from fedcap.federation.plan import Plan
from fedcap.federation.setup import refresh, set_up_operator, set_up_site

CLASSES = [str(digit) for digit in range(10)]


def plan(**more: Any) -> Plan:
    given: dict[str, Any] = {"method": "fedavg", "least": 1, "bundle": bundle_digest(), **more}
    return propose("trial", given.pop("method"), "cnn-digits", CLASSES, (1, 8, 8), {"epochs": 1}, **given)


def set_up(folder: Path, proposed: Plan, **place: Any) -> tuple[Operator, SiteDirectory]:
    """Make an operator with one site, which has agreed and is approved."""
    ports = {"port": free_port(), "link_port": free_port()}
    operator = Operator(folder / "op")
    set_up_operator(operator.directory, Federation(host="localhost", **(ports | place)), proposed)
    content = {"name": "oslo", "dataset": {"name": "digits"}, "client": "0"}
    made = set_up_site(folder / "oslo", Invitation.read(operator.directory / INVITATION), content)
    made.site.agree(proposed)
    request = JoinRequest.read(made.request)
    operator.ledger.ask(request.fingerprint, request.name, request.key)
    operator.ledger.approve(request.fingerprint)
    return operator, made.site


@pytest.fixture
def both(tmp_path: Path) -> tuple[Operator, SiteDirectory]:
    return set_up(tmp_path, plan())


def wrong(checks: list[Any], *but: str) -> dict[str, str]:
    """Return what is wrong, but for what a test cannot help."""
    return {check.what: check.message for check in checks if not check.ok and check.what not in but}


def operators(operator: Operator) -> dict[str, str]:
    return wrong(check_operator(operator), *([] if find_nginx() else ["nginx"]))


def sites(site: SiteDirectory) -> dict[str, str]:
    return wrong(check_site(site), "server")


def test_correct_directories_have_no_problems(both: tuple[Operator, SiteDirectory]) -> None:
    assert operators(both[0]) == {}
    assert sites(both[1]) == {}


@contextmanager
def answering(operator: Operator, date: datetime) -> Iterator[None]:
    """Answer with the server's certificate where sites look for it, at a time of day."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(404)
            self.send_header("Date", format_datetime(date, usegmt=True))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(operator.certificate, operator.key)
    with ThreadingHTTPServer(("localhost", operator.federation.port), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield
        server.shutdown()


def server_check(site: SiteDirectory) -> tuple[bool, str]:
    (found,) = [check for check in check_site(site) if check.what == "server"]
    return found.ok, found.message


def test_a_site_connects_to_the_server_and_compares_its_clock(both: tuple[Operator, SiteDirectory]) -> None:
    operator, site = both
    well, said = server_check(site)
    assert not well
    assert "no connection to" in said
    with answering(operator, datetime.now(UTC)):
        assert server_check(site)[0]
    for hours, way in ((2, "behind"), (-2, "ahead of")):
        with answering(operator, datetime.now(UTC) + timedelta(hours=hours)):
            well, said = server_check(site)
        assert not well
        assert f"s {way} the server's: set it" in said


def test_a_server_with_another_authority_is_not_trusted(
    both: tuple[Operator, SiteDirectory], tmp_path: Path
) -> None:
    operator, site = both
    other, _ = set_up(tmp_path / "other", plan(), port=operator.federation.port)
    with answering(other, datetime.now(UTC)):
        well, said = server_check(site)
    assert not well
    assert "a certificate that this site does not trust" in said


def test_the_operators_mistakes_are_reported(both: tuple[Operator, SiteDirectory]) -> None:
    operator, _ = both
    federation = operator.directory / "federation.toml"
    before = federation.read_text()
    federation.write_text(before.replace('"localhost"', '"fl.example.org"'))
    found = operators(operator)
    assert "not for fl.example.org" in found["certificate"]
    assert "does not match plan.toml" in found["invitation"]
    refresh(operator, renew=True)
    assert operators(operator) == {}
    operator.ledger.remove(next(iter(operator.ledger.entries())), "left")
    assert "0 clients may take part, a round needs 1" in operators(operator)["clients"]
    (operator.directory / "audit.jsonl").write_text("{}\n")
    assert "line 1, was changed" in operators(operator)["audit"]


def test_a_port_in_use_is_reported_unless_this_server_uses_it(both: tuple[Operator, SiteDirectory]) -> None:
    operator, _ = both
    with answering(operator, datetime.now(UTC)):
        said = operators(operator)["ports"]
        assert f"{operator.federation.port} cannot be used (Address already in use): change port in" in said
        with held(operator.directory):
            assert "ports" not in operators(operator)


def test_the_two_ports_must_differ(tmp_path: Path) -> None:
    port = free_port()
    operator, _ = set_up(tmp_path, plan(), port=port, link_port=port)
    assert "port and link_port are the same" in operators(operator)["ports"]


def test_a_missing_root_set_is_reported(tmp_path: Path) -> None:
    operator, _ = set_up(tmp_path, plan(method="fltrust"))
    assert "a table [root] in federation.toml" in operators(operator)["root set"]
    federation = operator.directory / "federation.toml"
    federation.write_text(federation.read_text() + '[root]\nname = "digits"\n')
    assert operators(operator) == {}


def test_a_plan_of_another_version_is_reported_on_both_sides(tmp_path: Path) -> None:
    operator, site = set_up(tmp_path, plan(bundle="0" * 64))
    assert "another version of fedcap: install the version of the operator" in sites(site)["plan"]
    said = operators(operator)["plan"]
    _, remedy = said.split("another version of fedcap: write ")
    path = operator.directory / "plan.toml"
    path.write_text(
        path.read_text().replace(f'bundle = "{"0" * 64}"', remedy.removesuffix(" into plan.toml"))
    )
    refresh(operator)
    assert operators(operator) == {}


def test_a_sites_mistakes_are_reported(both: tuple[Operator, SiteDirectory]) -> None:
    _, site = both
    (site.directory / "key").chmod(0o644)
    assert "others can read" in sites(site)["key"]
    config = site.directory / "site.toml"
    config.write_text(config.read_text().replace('"0"', '"99"'))
    assert "no client '99'" in sites(site)["data"]
    policy = site.directory / "policy.toml"
    before = policy.read_text()
    policy.write_text(before.replace("# methods is not set", 'methods = ["ditto"]'))
    assert "policy.toml forbids it: method fedavg" in sites(site)["plan"]
    policy.write_text(before)
    for path in site.agreed.iterdir():
        path.write_text(path.read_text().replace("rounds = 30", "rounds = 90"))
    assert "not agreed to yet" in sites(site)["plan"]
