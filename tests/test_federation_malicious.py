"""Malicious nodes with registered keys, against a real SuperLink, nginx, server app and two honest sites.

Each malicious node has its own way of breaking the rules. All of them take part in the same round, and that
round closes at its deadline with the honest answers in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
from flower_tools import (
    MaliciousNode,
    Small,
    client_of,
    has_nginx,
    until,
    well_behaved,
    zeros,
)

from fedcap.federation.audit import AUDIT, verify
from fedcap.federation.flower.transport import to_records
from fedcap.federation.messages import Answer, Order

pytestmark = [
    pytest.mark.federation,
    pytest.mark.skipif(not has_nginx(), reason="nginx is not installed"),
]
DEADLINE = 25.0


def nan(node: MaliciousNode, message: Any, order: Order) -> None:
    node.answer(message, Answer(order.nonce, order.round, zeros(order) * np.nan, 10))


def wrong_shape(node: MaliciousNode, message: Any, order: Order) -> None:
    node.answer(message, Answer(order.nonce, order.round, zeros(order)[1:], 10))


def vast(node: MaliciousNode, message: Any, order: Order) -> None:
    node.answer(message, Answer(order.nonce, order.round, np.ones(25_000_000, np.float32), 10))


def bomb(node: MaliciousNode, message: Any, order: Order) -> None:
    node.send(message, with_bomb(Answer(order.nonce, order.round, zeros(order), 10)))


def twice(node: MaliciousNode, message: Any, order: Order) -> None:
    assert node.answer(message, Answer(order.nonce, order.round, zeros(order), 10))
    again = Answer(order.nonce, order.round, zeros(order) + 1e6, 10)
    node.troubles.append(f"wanted {len(node.answer(message, again))}")


def old_round(node: MaliciousNode, message: Any, order: Order) -> None:
    node.answer(message, Answer(order.nonce, order.round + 1, zeros(order), 10))


def old_nonce(node: MaliciousNode, message: Any, order: Order) -> None:
    node.answer(message, Answer("0" * 32, order.round, zeros(order), 10))


def forged_sender(node: MaliciousNode, message: Any, order: Order) -> None:
    node.answer(message, Answer(order.nonce, order.round, zeros(order), 10), source=node.node.node_id ^ 1)


def never_uploaded(node: MaliciousNode, message: Any, order: Order) -> None:
    node.answer(message, Answer(order.nonce, order.round, zeros(order), 10), upload=False)


def other_records(node: MaliciousNode, message: Any, order: Order) -> None:
    from flwr.app import MetricRecord, RecordDict

    node.send(message, RecordDict({"arrays": MetricRecord({"a": 1.0})}))


def with_bomb(answer: Answer) -> Any:
    """Return an answer whose array says that its one piece comes a hundred thousand times: 5 GB."""
    from flwr.app import Array
    from flwr.supercore.inflatable.inflatable_object import add_header_to_object_body, get_object_body

    class Bomb(Array):
        def deflate(self) -> bytes:
            body = json.loads(get_object_body(super().deflate(), Array))
            body["arraychunk_ids"] = [0] * 100_000
            return add_header_to_object_body(json.dumps(body, separators=(",", ":")).encode(), self)

    Bomb.__qualname__ = Array.__qualname__
    content = to_records(answer.to_bytes())
    content["message"]["message"].__class__ = Bomb
    return content


BEHAVIOURS = (
    well_behaved,
    nan,
    wrong_shape,
    vast,
    bomb,
    twice,
    old_round,
    old_nonce,
    forged_sender,
    never_uploaded,
    other_records,
)


class Outcome:
    """The round in which all nodes took part, and their names."""

    def __init__(self, federation: Small, nodes: dict[str, MaliciousNode], record: dict[str, Any]) -> None:
        self.federation, self.nodes, self.record = federation, nodes, record

    def refusal(self, behaviour: Any) -> str:
        client = self.nodes[behaviour.__name__].client
        noted = [
            event.reason
            for event in self.federation.operator.audit.events()
            if (event.event, event.client, event.round) == ("refused", client, self.record["round"])
        ]
        assert noted == [self.record["refused"][client]]
        return str(noted[0])


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    federation = Small(tmp_path_factory.mktemp("federation"), sites=2, deadline=DEADLINE)
    folders = {behave: federation.add(behave.__name__) for behave in BEHAVIOURS}
    nodes = {behave.__name__: MaliciousNode(site, behave) for behave, site in folders.items()}
    try:
        federation.start_server()
        for site in federation.sites:
            federation.start_site(site)
        until(lambda: started(nodes), "malicious nodes are online")
        everyone_online = {client_of(site) for site in [*federation.sites, *folders.values()]}
        record = federation.next_record(lambda record: set(record["participants"]) == everyone_online)
        yield Outcome(federation, nodes, record)
    finally:
        for node in nodes.values():
            node.leave()
        federation.stop()


def started(nodes: dict[str, MaliciousNode]) -> bool:
    """Start those that are not online, as soon as the SuperLink knows their keys."""
    for node in nodes.values():
        if not hasattr(node, "node"):
            with suppress(Exception):
                node.start()
    return all(hasattr(node, "node") for node in nodes.values())


def test_the_round_closes_at_its_deadline_with_the_honest_answers_in(outcome: Outcome) -> None:
    honest = {client_of(site) for site in outcome.federation.sites}
    well = {outcome.nodes[name].client for name in ("well_behaved", "twice")}
    assert set(outcome.record["participants"]) - set(outcome.record["refused"]) == honest | well
    assert outcome.record["accuracy"]["clients"].keys() == honest
    assert DEADLINE - 1 < outcome.record["seconds"]["total"] < DEADLINE + 5


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (nan, "finite"),
        (wrong_shape, "13,705|13705"),
        (vast, "more than"),
        (bomb, "more than"),
        (old_round, "answers round"),
        (old_nonce, "answers another order"),
        (forged_sender, "did not answer"),
        (never_uploaded, "did not answer"),
        (other_records, "records"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_malicious_answer_is_refused_and_recorded(outcome: Outcome, behaviour: Any, words: str) -> None:
    assert re.search(words, outcome.refusal(behaviour))


def test_the_second_of_two_answers_is_ignored(outcome: Outcome) -> None:
    assert outcome.nodes["twice"].troubles[0] == "wanted 0"


def test_the_audit_is_complete_after_the_round(outcome: Outcome) -> None:
    assert verify(outcome.federation.operator.directory / AUDIT) == []
