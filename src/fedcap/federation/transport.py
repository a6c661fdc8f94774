"""What carries orders to sites and answers back: Flower in a real federation, a plain loop in tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fedcap.federation.messages import Answer, Order


@dataclass(frozen=True)
class Failure:
    """What came instead of an answer: nothing that can be read, an error, too much."""

    why: str
    """One line."""


Reply = Answer | Failure


class Transport(Protocol):
    """Carries messages. A client is the fingerprint of its public key."""

    def nodes(self) -> Mapping[str, str]:
        """Return the clients that are online now, and the address of each."""

    def exchange(self, orders: Mapping[str, Order], seconds: float) -> Mapping[str, Reply]:
        """Send each client its order, and return what came back by then, by the client it was sent to.

        It returns once all have replied, and after so many seconds at the latest; those who have not are left
        out. Whom a reply is from is the transport's own knowledge, not what the reply says. No client can
        make it raise, or wait longer. An answer larger than the plan's `most_bytes` is a `Failure`, and is
        not unpacked; so is what raises `Malformed`.
        """
