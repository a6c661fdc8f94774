"""A real federation for tests: processes of the operator and of sites on this machine, malicious nodes."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedcap.federation.build import propose
from fedcap.federation.config import INVITATION, Federation, Invitation, Operator, SiteDirectory
from fedcap.federation.flower.compat import bundle_digest
from fedcap.federation.flower.nginx import find_nginx
from fedcap.federation.flower.process import Program, free_port
from fedcap.federation.flower.server import OPERATOR
from fedcap.federation.flower.transport import from_records, to_records
from fedcap.federation.keys import JoinRequest, make_key
from fedcap.federation.messages import Answer, Order
from fedcap.federation.setup import set_up_operator, set_up_site

PATIENCE = 180.0
"""Seconds that a test waits for something to happen."""


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Return what the condition returns once that is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds:g} s: {what}")


class Small:
    """An operator's directory and those of its sites, and the processes in them."""

    def __init__(self, folder: Path, sites: int, **plan: Any) -> None:
        settings = {"rounds": 1000, "least": 2, "deadline": 20.0, "bundle": bundle_digest()} | plan
        method = settings.pop("method", "fedavg")
        training = {"lr": 0.1, "epochs": 1, "batch_size": 10}
        classes = [str(digit) for digit in range(10)]
        proposed = propose("test", method, "cnn-digits", classes, (1, 8, 8), training, **settings)
        self.operator = Operator(folder / "operator")
        federation = Federation(host="localhost", port=free_port(), link_port=free_port())
        set_up_operator(self.operator.directory, federation, proposed)
        self.invitation = Invitation.read(self.operator.directory / INVITATION)
        self.folder = folder
        self.children: dict[str, Program] = {}
        data = {"name": "digits"}
        self.sites = [self.add(f"site{k}", {"dataset": data, "client": str(k)}) for k in range(sites)]

    def add(self, name: str, content: dict[str, Any] | None = None, agrees: bool = True) -> SiteDirectory:
        """Set a site up and take it in."""
        content = content or {"dataset": {"name": "digits"}}
        made = set_up_site(self.folder / name, self.invitation, {"name": name, **content})
        if agrees:
            made.site.agree(self.invitation.plan)
        asked = JoinRequest.read(made.request)
        self.operator.ledger.ask(asked.fingerprint, asked.name, asked.key)
        self.operator.ledger.approve(asked.fingerprint)
        return made.site

    def start(self, role: str, directory: Path) -> Program:
        """Start `fedcap federate serve` or `site`."""
        command = [sys.executable, "-m", "fedcap", "federate", role, str(directory), "--json"]
        child = Program(command, os.environ, directory / "logs" / "command.log")
        self.children[directory.name] = child
        return child

    def start_server(self) -> Program:
        return self.start("serve", self.operator.directory)

    def start_site(self, site: SiteDirectory) -> Program:
        return self.start("site", site.directory)

    def stop(self) -> None:
        """End all processes."""
        for child in self.children.values():
            child.signal(signal.SIGCONT)
            child.signal(signal.SIGTERM)
        for child in self.children.values():
            child.stop()

    def records(self) -> list[dict[str, Any]]:
        """Return the rounds that are on disk and in the audit."""
        path = self.operator.run / "rounds.jsonl"
        closed = {event.round for event in self.operator.audit.events() if event.event == "round"}
        found = [json.loads(line) for line in path.read_text().splitlines()] if closed else []
        return [record for record in found if record["round"] in closed]

    def next_record(self, wanted: Callable[[dict[str, Any]], Any] = lambda _: True) -> dict[str, Any]:
        """Wait for a round after the last one on disk that is as wanted, and return it."""
        seen = len(self.records())
        rounds: list[dict[str, Any]] = []

        def look() -> bool:
            rounds[:] = [record for record in self.records()[seen:] if wanted(record)]
            return bool(rounds)

        until(look, "a round such as the test wants; see the operator's logs/server.log")
        return rounds[0]


def client_of(site: SiteDirectory) -> str:
    return make_key(site.directory)


def processes_of(variable: str, directory: Path, program: str) -> list[int]:
    """Return the processes of a program whose environment names a directory."""
    wanted = f"{variable}={directory.absolute()}".encode()
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and wanted in (process / "environ").read_bytes().split(b"\0"):
                words = (process / "cmdline").read_bytes().split(b"\0")
                if any(word.endswith(program.encode()) for word in words[:3]):
                    found.append(int(process.name))
    return found


def server_apps(federation: Small) -> list[int]:
    return processes_of(OPERATOR, federation.operator.directory, "flwr-serverapp")


class MaliciousNode:
    """A node with a registered key that speaks Flower's Fleet API as it likes; `behave` gets every order."""

    def __init__(self, site: SiteDirectory, behave: Callable[[MaliciousNode, Any, Order], None]) -> None:
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes
        from flwr.supernode.fleet_http_client import FleetHttpClient
        from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

        key: Any = load_ssh_private_key((site.directory / "key").read_bytes(), None)
        self.public = public_key_to_bytes(key.public_key())
        self.client = client_of(site)
        self.behave = behave
        self.troubles: list[str] = []
        self.fleet = FleetHttpClient.from_server_address(
            site.config.server, False, str(site.authority), [NodeAuthHttpInterceptor(key, key.public_key())]
        )
        self._stop = threading.Event()

    def activate(self) -> None:
        from flwr.proto.fleet_pb2 import ActivateNodeRequest
        from flwr.proto.node_pb2 import Node

        answer = self.fleet.ActivateNode(ActivateNodeRequest(public_key=self.public, heartbeat_interval=300))
        self.node = Node(node_id=answer.node_id)

    def start(self) -> None:
        """Go online, and answer orders in a thread."""
        self.activate()
        threading.Thread(target=self._work, daemon=True).start()

    def leave(self) -> None:
        """Go offline, if the node is online."""
        from flwr.proto.fleet_pb2 import DeactivateNodeRequest

        self._stop.set()
        if hasattr(self, "node"):
            self.fleet.DeactivateNode(DeactivateNodeRequest(node_id=self.node.node_id))

    def _work(self) -> None:
        while not self._stop.wait(0.5):
            try:
                if (message := self.receive()) is not None:
                    self.behave(self, message, Order.from_bytes(from_records(message.content)[0]))
            except Exception as error:
                self.troubles.append(repr(error))

    def receive(self) -> Any:
        from flwr.proto.fleet_pb2 import PullMessagesRequest
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
        from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

        answer = self.fleet.PullMessages(PullMessagesRequest(node=self.node))
        if not answer.messages_list:
            return None
        metadata = answer.messages_list[0].metadata

        def fetch(name: str) -> bytes:
            request = PullObjectRequest(node=self.node, run_id=metadata.run_id, object_id=name)
            return self.fleet.PullObject(request).object_content

        names = [tree.object_id for tree in iterate_object_tree(answer.message_object_trees[0])]
        contents = {
            name: until(lambda name=name: fetch(name), "the server uploads its order") for name in names
        }
        self.fleet.ConfirmMessageReceived(
            ConfirmMessageReceivedRequest(
                node=self.node, run_id=metadata.run_id, message_object_id=metadata.message_id
            )
        )
        message: Any = inflate_object_from_contents(metadata.message_id, contents)
        message.metadata.__dict__["_message_id"] = metadata.message_id
        return message

    def answer(self, message: Any, answer: Answer, **forged: Any) -> list[str]:
        """Send an answer; return the ids of its objects that the SuperLink wants."""
        return self.send(message, to_records(answer.to_bytes()), **forged)

    def send(
        self,
        message: Any,
        content: Any,
        source: int | None = None,
        reply_to: str | None = None,
        upload: bool = True,
        target: int = 1,
    ) -> list[str]:
        """Push a message of any kind in answer to another, in its own name or in the name of another node."""
        from flwr.app import Metadata
        from flwr.app.message import make_message, remove_content_from_message
        from flwr.common.serde import message_to_proto
        from flwr.proto.fleet_pb2 import PushMessagesRequest
        from flwr.proto.message_pb2 import PushObjectRequest
        from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

        sent = message.metadata
        made = make_message(
            Metadata(
                run_id=sent.run_id,
                message_id="",
                src_node_id=self.node.node_id if source is None else source,
                dst_node_id=target,
                reply_to_message_id=sent.message_id if reply_to is None else reply_to,
                group_id=sent.group_id,
                created_at=time.time(),
                ttl=max(1.0, sent.created_at + sent.ttl - time.time() - 0.5),
                message_type=sent.message_type,
            ),
            content,
        )
        made.metadata.__dict__["_message_id"] = made.object_id
        answer = self.fleet.PushMessages(
            PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(remove_content_from_message(made))],
                message_object_trees=[get_object_tree(made)],
                clientapp_runtime_list=[0.0],
            )
        )
        wanted = list(answer.objects_to_push)
        for name, thing in get_all_nested_objects(made).items() if upload else ():
            if name in wanted:
                self.fleet.PushObject(
                    PushObjectRequest(
                        node=self.node,
                        run_id=sent.run_id,
                        object_id=name,
                        object_content=thing.deflate(),
                        session_id=answer.session_id,
                    )
                )
        return wanted


def zeros(order: Order) -> np.ndarray:
    return np.zeros(order.models.shape[1], np.float32)


def well_behaved(node: MaliciousNode, message: Any, order: Order) -> None:
    node.answer(message, Answer(order.nonce, order.round, zeros(order), 10))


def has_nginx() -> bool:
    return find_nginx() is not None
