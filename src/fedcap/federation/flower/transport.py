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

from fedcap.errors import InputError
from fedcap.federation.flower.pulling import TooLate, TooMuch, pull
from fedcap.federation.flower.records import from_records, to_records
from fedcap.federation.identity import fingerprint
from fedcap.federation.messages import Answer, Arrays, Config, Malformed, Order
from fedcap.federation.transport import Failure, Reply

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

PAUSE = 0.3
"""Seconds between two looks for a reply; with more than ten clients, more, to spare the SuperLink."""
AT_ONCE = 4
"""How many orders are packed and sent at the same time: each takes the memory of its models."""
LONGEST = 300
"""Characters of a client's error that are told."""
Sign = Callable[[Arrays, Config, str], Config]


class FlowerTransport:
    """Carries orders to SuperNodes; `sign` seals each of them for the client that it is for."""

    def __init__(self, grid: Grid, most_bytes: int, sign: Sign) -> None:
        self.grid, self.most_bytes, self.sign = grid, most_bytes, sign
        self._sending = threading.Semaphore(AT_ONCE)

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

        def converse(client: str, order: Order) -> None:
            reply = self._reply(client, addresses.get(client), order, until, pause)
            if reply is not None:
                replies.put((client, reply))

        for item in orders.items():
            threading.Thread(target=converse, args=item, daemon=True).start()
        found: dict[str, Reply] = {}
        while len(found) < len(orders):
            try:
                client, reply = replies.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            found[client] = reply
        return found

    def _reply(
        self, client: str, address: str | None, order: Order, until: float, pause: float
    ) -> Reply | None:
        """Send a client its order and return its reply, none if there is none in time."""
        if address is None:
            return Failure("it is not online")
        sent: str | None = None
        while (left := until - time.monotonic()) > 0:
            try:
                if sent is None:
                    with self._sending:
                        sent = self._send(client, address, order, left)
                if (reply := pull(self.grid, sent, self.most_bytes, until)) is not None:
                    return read(reply)
            except TooMuch:
                return Failure(f"its reply has more than {self.most_bytes:,} bytes")
            except TooLate:
                return None
            except Exception as error:
                if sent is not None and not is_trouble_of_the_link(error):
                    return Failure(f"its reply cannot be read ({type(error).__name__})")
            time.sleep(pause)
        return None

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
