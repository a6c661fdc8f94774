"""Orders and answers over Flower's Grid, each as one blob of bytes that `messages.encode` made.

A reply names its sender itself, and Flower does not check this name. So every message that goes out has an id
that depends on its random nonce, each id is fetched separately, and the client is the one to which this id
was sent. Each order carries the operator's seal: a signature of the blob with the key of the server's
certificate, because Flower lets any registered node leave a message for another in the server's name. One
thread per client sends and waits, so a slow client delays no other.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fedcap.errors import InputError
from fedcap.federation.audit import bounded
from fedcap.federation.flower.compat import TooLarge, TooLate, is_connection_error, pull
from fedcap.federation.keys import fingerprint
from fedcap.federation.messages import Answer, Failure, Malformed, Order, Reply

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict
    from flwr.serverapp import Grid

PAUSE = 0.3
"""Seconds between two looks for a reply; with more than ten clients, more, to spare the SuperLink."""
SENDERS = 4
"""How many orders are encoded and sent at the same time: each takes the memory of its models."""
MAX_ERROR_TEXT = 300
MESSAGE, SEAL = "message", "seal"
"""The records of a message, and the name of its blob."""


# --- Flower's records


def to_records(blob: bytes, seal: Mapping[str, str] | None = None) -> RecordDict:
    """Return Flower's records of a message; an order has a seal."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    array = Array(dtype="uint8", shape=(len(blob),), stype="fedcap", data=blob)
    return RecordDict({MESSAGE: ArrayRecord({MESSAGE: array}), SEAL: ConfigRecord(dict(seal or {}))})


def from_records(content: Any) -> tuple[bytes, Mapping[str, Any]]:
    """Return the blob and the seal of a message; raise `Malformed` for any other records."""
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    if not isinstance(content, RecordDict) or set(content) != {MESSAGE, SEAL}:
        raise Malformed("the message has other records than it should")
    record, seal = content[MESSAGE], content[SEAL]
    if not isinstance(record, ArrayRecord) or not isinstance(seal, ConfigRecord) or set(record) != {MESSAGE}:
        raise Malformed("the message's records are of the wrong kind")
    return bytes(record[MESSAGE].data), dict(seal)


# --- The operator's seal


class Seal:
    """Signs orders with the server's key, each for one client."""

    def __init__(self, key: Path, certificate: Path) -> None:
        self._key: Any = load_pem_private_key(key.read_bytes(), None)
        self._certificate = certificate.read_text()

    def __call__(self, blob: bytes, client: str) -> dict[str, str]:
        """Return the seal of an order for a client."""
        signature = self._key.sign(_signed(blob, client), ec.ECDSA(SHA384()))
        return {"certificate": self._certificate, "signature": signature.hex()}


def check_seal(blob: bytes, seal: Mapping[str, Any], client: str, authority: bytes) -> None:
    """Raise `Malformed` unless the operator sealed this order for this client.

    The certificate must be issued by the authority that the site trusts, and be valid now.
    """
    try:
        certificate = x509.load_pem_x509_certificate(str(seal["certificate"]).encode())
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        if not certificate.not_valid_before_utc <= datetime.now(UTC) <= certificate.not_valid_after_utc:
            raise ValueError
        public: Any = certificate.public_key()
        public.verify(bytes.fromhex(seal["signature"]), _signed(blob, client), ec.ECDSA(SHA384()))
    except Exception:  # a forged order can be wrong in many ways
        raise Malformed("the order does not bear the operator's seal for this site") from None


def _signed(blob: bytes, client: str) -> bytes:
    return client.encode() + b"\0" + hashlib.sha256(blob).digest()


# --- The transport


class FlowerTransport:
    """Carries orders to SuperNodes; `seal` signs each of them for its client."""

    def __init__(self, grid: Grid, most_bytes: int, seal: Callable[[bytes, str], Mapping[str, str]]) -> None:
        self.grid, self.most_bytes, self.seal = grid, most_bytes, seal
        self._sending = threading.Semaphore(SENDERS)

    def nodes(self) -> Mapping[str, str]:
        """Return the clients that are connected now, and the id of each one's node as text."""
        found = {}
        for node in self.grid.get_nodes():
            if node.status == "online":
                try:
                    found[fingerprint(node.public_key)] = str(node.node_id)
                except InputError:
                    continue
        return found

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Mapping[str, Reply]:
        """Send each client its order, and return the replies that came within `seconds`."""
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
                    return read_reply(reply)
            except TooLarge:
                return Failure(f"its reply has more than {self.most_bytes:,} bytes")
            except TooLate:
                return None
            except Exception as error:
                if sent is not None and not is_connection_error(error):
                    return Failure(f"its reply cannot be read ({type(error).__name__})")
            time.sleep(pause)
        return None

    def _send(self, client: str, address: str, order: Order, left: float) -> str:
        from flwr.app import Message, MessageType

        blob = order.to_bytes()
        content = to_records(blob, self.seal(blob, client))
        message = Message(content, int(address), MessageType.TRAIN, ttl=left, group_id=str(order.round))
        (sent,) = self.grid.push_messages([message])
        return sent


def read_reply(reply: Message) -> Reply:
    """Return the answer of a reply, or why there is none."""
    if reply.has_error():
        return Failure(f"error {reply.error.code}: {bounded(str(reply.error.reason), MAX_ERROR_TEXT)}")
    try:
        return Answer.from_bytes(from_records(reply.content)[0])
    except Malformed as error:
        return Failure(str(error))
