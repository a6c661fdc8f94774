"""Strangers on the network, code without agreement, and processes that are killed during a round.

One federation runs through all tests: SuperLink, nginx, server app, two sites, and a node of ours that can do
what a SuperNode does not do. The tests build on each other's state, and run in this order.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
from flower_tools import (
    MaliciousNode,
    Small,
    client_of,
    has_nginx,
    processes_of,
    server_apps,
    until,
    well_behaved,
)

from fedcap.federation.audit import AUDIT, verify
from fedcap.federation.config import SiteDirectory
from fedcap.federation.flower.compat import bundle_digest, bundle_file
from fedcap.federation.flower.node import SITE, Node
from fedcap.federation.flower.process import environment, program
from fedcap.federation.flower.server import CONNECTION, OPERATOR, flwr
from fedcap.federation.flower.transport import to_records
from fedcap.federation.keys import make_key
from fedcap.federation.messages import Answer, Order
from fedcap.federation.site import StateFolder

pytestmark = [
    pytest.mark.federation,
    pytest.mark.skipif(not has_nginx(), reason="nginx is not installed"),
]


class Helper(MaliciousNode):
    """A node that answers as it should, keeps the last message, and can wait before it answers."""

    def __init__(self, site: SiteDirectory) -> None:
        super().__init__(site, self.respond)
        self.last: Any = None
        self.ordered, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def respond(self, node: MaliciousNode, message: Any, order: Order) -> None:
        self.last = message
        self.ordered.set()
        self.go_on.wait(20)
        well_behaved(node, message, order)

    def in_mid_round(self) -> None:
        """Return as soon as a round is under way, which then waits for this node's answer."""
        self.go_on.clear()
        self.ordered.clear()
        assert self.ordered.wait(60)


class Running:
    """The federation and its helper."""

    def __init__(self, folder: Path) -> None:
        self.small = Small(folder, sites=2, method="ditto")
        self.helper = Helper(self.small.add("helper"))

    def log(self, site: SiteDirectory) -> str:
        return (site.logs / "supernode.log").read_text(errors="replace")

    def node_id(self, site: SiteDirectory) -> int:
        return int(re.findall(r"SuperNode ID: (\d+)", self.log(site))[-1])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("federation"))
    small = found.small
    try:
        small.start_server()
        for site in small.sites:
            small.start_site(site)

        def online() -> bool:
            with suppress(Exception):
                found.helper.start()
            return hasattr(found.helper, "node")

        until(online, "the helper is online")
        three = {client_of(site) for site in small.sites} | {found.helper.client}
        small.next_record(lambda record: set(record["participants"]) == three and not record["refused"])
        yield found
    finally:
        with suppress(Exception):
            found.helper.leave()
        small.stop()


def status(port: int, authority: Path, path: str, method: str = "POST") -> int:
    context = ssl.create_default_context(cafile=str(authority))
    connection = HTTPSConnection("localhost", port, context=context, timeout=20)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in {
        "Host": "localhost",
        "Content-Type": "application/protobuf",
        "Content-Length": "0",
    }.items():
        connection.putheader(name, value)
    connection.endheaders()
    return connection.getresponse().status


def test_sites_reach_only_the_calls_of_a_supernode(running: Running) -> None:
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supernode.fleet_http_client import FleetHttpClient

    operator = running.small.operator
    front, link = operator.federation.port, operator.federation.link_port
    code = "".join(map(inspect.getsource, (ControlHttpClient, RuntimeHttpClient)))
    closed = {*re.findall(r'"(/v1/[a-z/-]+)"', code), "/v1/fleet/register-node", "/v1/fleet/unregister-node"}
    assert len(closed) > 50
    for path in (*closed, "/", "/docs", "/openapi.json", "/health", "/v1/fleet/", "/v1/runtime/responses"):
        assert status(front, operator.authority, path) == 404, path
    assert status(link, operator.authority, "/v1/control/list-runs") == 200  # no login: that is why
    for twisted in (
        "/v1/fleet/../control/list-runs",
        "/v1/fleet/pull-messages/../../control/list-runs",
        "/v1/fleet/%2e%2e/control/list-runs",
        "//v1/control/list-runs",
        "/v1/fleet/pull-messages%2f..%2f..%2fcontrol%2flist-runs",
    ):
        assert status(front, operator.authority, twisted) in (400, 404), twisted
    opened = set(re.findall(r'"(/v1/fleet/[a-z-]+)"', inspect.getsource(FleetHttpClient))) - closed
    assert {status(front, operator.authority, path) for path in opened} == {401}
    assert {status(front, operator.authority, path, "GET") for path in opened} == {403}


def test_flwr_commands_fail_for_a_stranger_who_has_the_certificate_of_the_authority(
    running: Running, tmp_path: Path
) -> None:
    operator = running.small.operator
    make_key(tmp_path)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "pyproject.toml").write_text(bundle_file())

    def stranger(port: int, *words: str) -> int:
        lines = [
            "[superlink.it]",
            f'address = "localhost:{port}"',
            f'root-certificates = "{operator.authority}"',
        ]
        (tmp_path / "config.toml").write_text("\n".join(lines) + "\n")
        command = [program("flwr"), *words]
        done = subprocess.run(command, env=environment(tmp_path), capture_output=True, timeout=60)
        return done.returncode

    runs = len(server_apps(running.small))
    front = operator.federation.port
    assert stranger(operator.federation.link_port, "list", "it") == 0
    assert stranger(front, "list", "it") != 0
    assert stranger(front, "supernode", "list", "it") != 0
    assert stranger(front, "supernode", "register", str(tmp_path / "key.pub"), "it") != 0
    assert stranger(front, "run", str(tmp_path / "app"), "it") != 0
    assert stranger(front, "stop", str(running.helper.last.metadata.run_id), "it") != 0
    assert len(server_apps(running.small)) == runs == 1


def test_a_key_without_approval_is_rejected_and_the_site_reports_it(running: Running, tmp_path: Path) -> None:
    operator, client = running.small.operator, make_key(tmp_path)
    site = SiteDirectory(tmp_path)
    shutil.copy(operator.authority, site.authority)
    node = Node(site, operator.federation.address, client, [bundle_digest()])
    with node.start() as child:
        until(lambda: not child.is_running, "the SuperNode ends")
        said = " ".join(filter(None, map(node.explain, child.output().splitlines())))
    assert "not approved" in said
    assert client in said


def test_an_order_that_another_site_sends_in_the_servers_name_is_refused(running: Running) -> None:
    victim, helper = running.small.sites[0], running.helper
    order = Order("train", 10**6, "0" * 32, running.small.operator.plan.digest)
    helper.send(
        helper.last, to_records(order.to_bytes()), source=1, target=running.node_id(victim), reply_to=""
    )
    until(lambda: "refused: the order does not bear the operator's seal" in running.log(victim), "a refusal")


def test_an_answer_to_the_order_of_another_site_is_refused(running: Running) -> None:
    small, helper = running.small, running.helper
    victim = small.sites[0]
    main = small.children[victim.directory.name].pid
    os.kill(main, signal.SIGSTOP)
    seen = len(running.log(victim))

    def received() -> list[str]:
        return re.findall(r"Receiving: train message \(ID: (\w+)\)", running.log(victim)[seen:])

    (message,) = until(received, "the victim gets an order")[:1]
    until(lambda: helper.last.metadata.group_id == running_round(running, victim), "the same round's order")
    forged = Answer("0" * 32, int(helper.last.metadata.group_id), None, 10)
    wanted = helper.answer(helper.last, forged, source=running.node_id(victim), reply_to=message)
    assert wanted, "the SuperLink takes it"
    os.kill(main, signal.SIGCONT)
    record = small.next_record(lambda record: client_of(victim) in record["refused"])
    assert record["refused"] == {client_of(victim): "answers another order than the one it was sent"}


def running_round(running: Running, site: SiteDirectory) -> str:
    return re.findall(r"\[RUN \d+, ROUND (\d+)\]", running.log(site))[-1]


def test_a_bundle_that_the_sites_have_not_agreed_to_is_not_run(running: Running, tmp_path: Path) -> None:
    replies, harm, app = tmp_path / "replies", tmp_path / "harm", tmp_path / "evil"
    app.mkdir()
    ours = "fedcap.federation.flower.apps"
    (app / "pyproject.toml").write_text(bundle_file().replace(ours, "evil"))
    (app / "evil.py").write_text(EVIL.format(replies=str(replies), harm=str(harm)))
    flwr(running.small.operator, "run", str(app), CONNECTION)
    until(replies.exists, "the evil server app has its replies")
    errors = replies.read_text().splitlines()
    assert len(errors) == 2
    assert all("this site has not agreed to the bundle" in error for error in errors)
    assert not harm.exists()


EVIL = """
import pathlib, time
pathlib.Path("{harm}").write_text("imported") if "clientapp" in " ".join(__import__("sys").argv) else None
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()

@client.train()
def train(message, context):
    pathlib.Path("{harm}").write_text("run")
    return Message(RecordDict(), reply_to=message)

@server.main()
def main(grid, context):
    nodes = [node for node in grid.get_nodes() if node.heartbeat_interval < 100]
    content = RecordDict({{"c": ConfigRecord({{"a": 1}})}})
    asked = [Message(content, node.node_id, MessageType.TRAIN) for node in nodes]
    replies = list(grid.send_and_receive(asked, timeout=60))
    text = "\\n".join(reply.error.reason if reply.has_error() else "no error" for reply in replies)
    pathlib.Path("{replies}.partial").write_text(text)
    pathlib.Path("{replies}.partial").rename("{replies}")
"""


def states(site: SiteDirectory, running: Running) -> StateFolder:
    return StateFolder(site.state, running.small.operator.plan)


def test_a_site_killed_during_a_round_is_left_out_and_keeps_its_model(running: Running) -> None:
    small, site = running.small, running.small.sites[1]
    main = small.children[site.directory.name]
    os.kill(main.pid, signal.SIGSTOP)  # its order will wait at its socket
    seen = len(running.log(site))
    until(lambda: "Start `flwr-clientapp`" in running.log(site)[seen:], "the site has an order")
    before = {path.name: path.read_bytes() for path in states(site, running).path.iterdir()}
    for name in ("flower-supernode", "flower-superexec", "apps"):
        for process in processes_of(SITE, site.directory, name):
            os.kill(process, signal.SIGKILL)
    main.kill()
    record = small.next_record(lambda record: client_of(site) in record["refused"])
    assert client_of(small.sites[0]) in record["accuracy"]["clients"]
    assert {path.name: path.read_bytes() for path in states(site, running).path.iterdir()} == before
    small.start_site(site)
    until(
        lambda: "less than a minute ago" in small.children[site.directory.name].output(),
        "it waits, and says why",
    )


def killed_in_mid_round(running: Running, process: int) -> None:
    """Kill a process in mid-round; after its restart, the round is played again and nothing is lost."""
    small, helper = running.small, running.helper
    helper.in_mid_round()
    path = small.operator.run / "rounds.jsonl"
    confirmed = path.read_bytes()
    rounds = len(confirmed.splitlines())
    os.kill(process, signal.SIGKILL)
    helper.go_on.set()
    until(lambda: len(small.records()) >= rounds + 2, "two more rounds")
    assert path.read_bytes().startswith(confirmed)
    numbers = [record["round"] for record in small.records()]
    assert numbers == list(range(1, len(numbers) + 1))
    events = list(small.operator.audit.events())
    assert [event.round for event in events if event.event == "round"][: len(numbers)] == numbers
    assert [event.round for event in events if event.event == "restarted"][-1] == rounds
    assert verify(small.operator.directory / AUDIT) == []


def test_a_server_app_killed_during_a_round_continues_with_that_round(running: Running) -> None:
    (process,) = server_apps(running.small)
    killed_in_mid_round(running, process)
    assert "the server app ended; starting it again" in running.small.children["operator"].output()


def test_a_superlink_killed_during_a_round_continues_with_that_round(running: Running) -> None:
    (process,) = processes_of(OPERATOR, running.small.operator.directory, "flower-superlink")
    killed_in_mid_round(running, process)
    assert "the SuperLink ended; starting it again" in running.small.children["operator"].output()


def test_the_killed_site_returns_with_its_personal_model(running: Running) -> None:
    small, site = running.small, running.small.sites[1]
    kept = states(site, running).last()
    assert kept is not None
    record = small.next_record(
        lambda record: client_of(site) in (record["accuracy"] or {"clients": {}})["clients"]
    )
    states_now = states(site, running)
    assert states_now.rounds()[0] == kept.round or len(states_now.rounds()) == 2
    assert record["round"] > kept.round
    (started,) = [
        e for e in small.operator.audit.events() if e.event == "active" and e.client == client_of(site)
    ]
    assert started.round is not None
    assert started.round <= kept.round  # it never came as a newcomer


def test_every_process_ends_with_the_command_that_started_it(running: Running) -> None:
    small, site = running.small, running.small.sites[0]
    os.kill(small.children[site.directory.name].pid, signal.SIGKILL)
    until(lambda: not processes_of(SITE, site.directory, ""), "the SuperNode ends with the site", 30)
    os.kill(small.children["operator"].pid, signal.SIGKILL)
    until(lambda: not processes_of(OPERATOR, small.operator.directory, ""), "the SuperLink ends too", 30)
    until(lambda: refused(small.operator.federation.port), "nginx ends too", 30)


def refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
