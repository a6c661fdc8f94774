"""Orders and answers over Flower's Grid.

Whom a reply is from, Flower leaves to the reply's own word. Here every message that goes out has an id that
holds its random nonce, each id is fetched on its own, and the client is the one that this id was sent to. One
thread per client sends and waits, so that nobody's delay is another's.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fedcap.federation.flower.pulling import TooLate, TooMuch, pull
from fedcap.federation.flower.records import from_records, to_records
from fedcap.federation.identity import fingerprint
from fedcap.federation.messages import Answer, Arrays, Config, Malformed, Order
from fedcap.federation.transport import Failure, Reply
from fedcap.registry import InputError

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

PAUSE = 0.3
"""Seconds between two looks for a reply; with more than ten clients, more, to spare the SuperLink."""
LONGEST = 300
"""Characters of a client's error that are told."""
Sign = Callable[[Arrays, Config, str], Config]


class FlowerTransport:
    """Carries orders to SuperNodes; `sign` seals each of them for the client that it is for."""

    def __init__(self, grid: Grid, most_bytes: int, sign: Sign) -> None:
        self.grid, self.most_bytes, self.sign = grid, most_bytes, sign

    def nodes(self) -> Mapping[str, str]:
        """Return the clients that are online now, and the id of each one's node as text."""
        found = {}
        for node in self.grid.get_nodes():
            if node.status == "online":
                try:
                    found[fingerprint(node.public_key)] = str(node.node_id)
                except InputError:
                    continue
        return found

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Mapping[str, Reply]:
        """Send each client its order, and return what came back within so many seconds."""
        until = time.monotonic() + seconds
        replies: queue.Queue[tuple[str, Reply]] = queue.Queue()
        addresses = self.nodes()
        pause = PAUSE * max(1.0, len(orders) / 10)
        for client, order in orders.items():
            if client not in addresses:
                replies.put((client, Failure("it is not online")))
                continue
            job = (replies, client, addresses[client], order, until, pause)
            threading.Thread(target=self._converse, args=job, daemon=True).start()
        found: dict[str, Reply] = {}
        while len(found) < len(orders):
            try:
                client, reply = replies.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            found[client] = reply
        return found

    def _converse(
        self,
        replies: queue.Queue[tuple[str, Reply]],
        client: str,
        address: str,
        order: Order,
        until: float,
        pause: float,
    ) -> None:
        """Send one client its order and wait for the reply; a SuperLink that is away is tried again."""
        sent: str | None = None
        while (left := until - time.monotonic()) > 0:
            try:
                if sent is None:
                    sent = self._send(client, address, order, left)
                if (reply := pull(self.grid, sent, self.most_bytes, until)) is not None:
                    replies.put((client, read(reply)))
                    return
            except TooMuch:
                replies.put((client, Failure(f"its reply has more than {self.most_bytes:,} bytes")))
                return
            except TooLate:
                return
            except Malformed as error:
                replies.put((client, Failure(str(error))))
                return
            except Exception as error:
                if sent is not None and not is_trouble_of_the_link(error):
                    replies.put((client, Failure(f"its reply cannot be read ({type(error).__name__})")))
                    return
            time.sleep(pause)

    def _send(self, client: str, address: str, order: Order, left: float) -> str:
        from flwr.app import Message, MessageType

        arrays, config = order.pack()
        content = to_records(arrays, self.sign(arrays, config, client))
        message = Message(content, int(address), MessageType.TRAIN, ttl=left, group_id=str(order.round))
        (sent,) = self.grid.push_messages([message])
        return sent


def read(reply: Message) -> Reply:
    """Return what a reply says."""
    if reply.has_error():
        said = "".join(c if c.isprintable() else " " for c in str(reply.error.reason)[:LONGEST])
        return Failure(f"error {reply.error.code}: {said}")
    try:
        return Answer.unpack(*from_records(reply.content))
    except Malformed as error:
        return Failure(str(error))


def is_trouble_of_the_link(error: Exception) -> bool:
    """Return whether an error is about reaching the SuperLink, not about what a client sent."""
    import httpx

    return isinstance(error, httpx.HTTPError)
