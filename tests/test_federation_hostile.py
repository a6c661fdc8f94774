"""Hostile nodes with registered keys, against a real SuperLink, nginx, server app and two honest sites.

Each hostile node has its own way of breaking the rules. All of them take part in the same round, and that round
closes at its deadline with the honest answers in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")
from flower_tools import (
    HostileNode,
    Small,
    client_of,
    has_nginx,
    until,
    well_behaved,
    zeros,
)

from fedcap.federation.flower.records import to_records
from fedcap.federation.messages import Answer, Order

pytestmark = [
    pytest.mark.federation,
    pytest.mark.skipif(not has_nginx(), reason="nginx is not installed"),
]
DEADLINE = 25.0


def nan(node: HostileNode, message: Any, order: Order) -> None:
    node.answer(message, Answer(order.nonce, order.round, zeros(order) * np.nan, 10))


def wrong_shape(node: HostileNode, message: Any, order: Order) -> None:
    node.answer(message, Answer(order.nonce, order.round, zeros(order)[1:], 10))


def vast(node: HostileNode, message: Any, order: Order) -> None:
    node.answer(message, Answer(order.nonce, order.round, np.ones(25_000_000, np.float32), 10))


def bomb(node: HostileNode, message: Any, order: Order) -> None:
    def repeat(content: bytes) -> bytes:
        """Say that the array's one piece comes a hundred thousand times."""
        return content.replace(b'"arraychunk_ids": [0]', b'"arraychunk_ids": [' + b"0," * 99_999 + b"0]")

    node.send(message, Bomb(*Answer(order.nonce, order.round, zeros(order), 10).pack()), alter=repeat)


def twice(node: HostileNode, message: Any, order: Order) -> None:
    assert node.answer(message, Answer(order.nonce, order.round, zeros(order), 10))
    again = Answer(order.nonce, order.round, zeros(order) + 1e6, 10)
    node.troubles.append(f"wanted {len(node.answer(message, again))}")


def old_round(node: HostileNode, message: Any, order: Order) -> None:
    node.answer(message, Answer(order.nonce, order.round + 1, zeros(order), 10))


def old_nonce(node: HostileNode, message: Any, order: Order) -> None:
    node.answer(message, Answer("0" * 32, order.round, zeros(order), 10))


def forged_sender(node: HostileNode, message: Any, order: Order) -> None:
    node.answer(message, Answer(order.nonce, order.round, zeros(order), 10), source=node.node.node_id ^ 1)


def never_uploaded(node: HostileNode, message: Any, order: Order) -> None:
    node.answer(message, Answer(order.nonce, order.round, zeros(order), 10), upload=False)


def other_records(node: HostileNode, message: Any, order: Order) -> None:
    from flwr.app import MetricRecord, RecordDict

    node.send(message, RecordDict({"arrays": MetricRecord({"a": 1.0})}))


BEHAVIOURS = [
    well_behaved,
    nan,
    wrong_shape,
    vast,
    twice,
    old_round,
    old_nonce,
    forged_sender,
    never_uploaded,
    other_records,
]
