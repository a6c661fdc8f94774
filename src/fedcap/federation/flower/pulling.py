"""One reply, fetched from the SuperLink within a bound of bytes and of time.

Flower fetches whatever a client announced: a reply that is never uploaded holds it for minutes, and a reply
of any size, or a small one that names the same piece ten thousand times, fills the memory. Here the first
object that goes over the bound ends the fetching.
"""

from __future__ import annotations

import copy
import json
import math
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

OVERHEAD = 1 << 16
"""Bytes that Flower's own descriptions of a message may take."""


class TooMuch(Exception):
    """A reply is larger than it may be."""


class TooLate(Exception):
    """The time is over."""


def pull(grid: Grid, message: str, most: int, until: float) -> Message | None:
    """Return the reply to one message, or none if there is none yet.

    `most` is how many bytes it may have, `until` the time (`time.monotonic`) at which fetching ends.
    """
    bounded: Any = copy.copy(grid)
    bounded._client = Bounded(bounded._runtime_client, most, until)
    replies = list(bounded.pull_messages([message]))
    return replies[0] if replies else None


class Bounded:
    """Flower's client of the SuperLink, which stops fetching objects at a bound."""

    def __init__(self, client: Any, most: int, until: float) -> None:
        self._client, self._most, self._left, self._until = client, most, most + OVERHEAD, until

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def PullObject(self, request: Any) -> Any:
        """Fetch one object."""
        if time.monotonic() >= self._until:
            raise TooLate
        response = self._client.PullObject(request)
        self._left -= len(response.object_content)
        if self._left < 0 or pieces(response.object_content) > self._most_pieces():
            raise TooMuch
        return response

    def _most_pieces(self) -> int:
        from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE

        return max(1, math.ceil(self._most / FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE))


def pieces(content: bytes) -> int:
    """Return of how many pieces an object says that it is put together, counting repeated ones."""
    head, _, body = content.partition(b"\x00")
    if not head.startswith(b"Array "):
        return 0
    try:
        return len(json.loads(body)["arraychunk_ids"])
    except (ValueError, KeyError, TypeError):
        return 0
