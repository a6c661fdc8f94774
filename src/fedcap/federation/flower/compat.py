"""All undocumented names and texts of Flower that fedcap relies on, for the release that it is tested with.

tests/test_flower_compat.py has a test for each: that it exists, takes our arguments and behaves as we need.
To move to another release, change FLOWER, run these tests, and change this file until they pass.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import fedcap
from fedcap.errors import InputError

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

FLOWER = "1.41.0"
OVERHEAD = 1 << 16
"""Bytes that Flower's own descriptions of a message may take."""
CLIENT_APP_MODULE = "flwr.supernode.runtime.run_clientapp"
UNPACK = "install_from_fab"
"""Flower's function in that module that unpacks a bundle."""
OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
}
"""Variables by which Flower contacts only the federation, installs nothing, and looks for tasks five times a
second."""
FLEET_CALLS = (
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "get-run",
    "get-fab",
    "push-object",
    "pull-object",
    "confirm-message-received",
)
"""The calls of a SuperNode, without those that register and unregister keys, which are the operator's."""
KEY_IS_KNOWN = "already in use"
"""A part of the message of `flwr supernode register` for a key that the SuperLink knows."""
CONNECTED, NO_ANSWER = "SuperNode ID", "retrying in"
LOG_MEANINGS = {
    CONNECTED: "connected to {server}",
    "Connection successful": "the server at {server} answers again",
    NO_ANSWER: "no answer from {server}: is the server up, and is the address right? Trying again",
    "[code: 2004]": "the server rejected this site: either its key is not approved yet (fingerprint"
    " {client}), or the site lost its connection less than a minute ago and the server still lists it as"
    " connected",
    "certificate verify failed": "the server's certificate is not by the authority in {authority}, or not for"
    " this name: {server}",
    "SSL/TLS": "no TLS with {server}: is this the address of the federation's server?",
    "401 Unauthorized": "the server does not accept this site's signature: set this machine's clock",
    "404 Not Found": "{server} is not a federation's server",
}
"""Phrases of a SuperNode's log, and their meaning for the site's people; the first match counts."""


def require_flower() -> None:
    """Raise an `InputError` unless Flower is installed in the release that this file is for."""
    install = f"pip install 'fedcap[flower]' (flwr {FLOWER})"
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise InputError(f"a federation needs Flower: {install}", code="no-flower") from None
    if found != FLOWER:
        raise InputError(
            f"flwr {found} is installed, and fedcap is tested with another release: {install}",
            code="flower-version",
        )


# --- The bundle


def bundle_file() -> str:
    """Return the only file of the bundle, pyproject.toml: it names code that is installed at every site.

    The bundle has no code of its own, and its bytes follow from this package's version. So the digest that a
    site agrees to, as part of the plan, can be computed by everyone who has the same version.
    """
    return "\n".join(
        [
            "[project]",
            'name = "fedcap-federation"',
            f'version = "{fedcap.__version__}"',
            'description = "fedcap on Flower; the code is the installed package\'s"',
            'license = "Apache-2.0"',
            "dependencies = []",
            "",
            "[tool.flwr.app]",
            'publisher = "fedcap"',
            "",
            "[tool.flwr.app.components]",
            'serverapp = "fedcap.federation.flower.apps:server"',
            'clientapp = "fedcap.federation.flower.apps:client"',
            "",
        ]
    )


def build_bundle(pyproject: str) -> bytes:
    """Return the bundle that `flwr run` makes of a folder with this pyproject.toml."""
    from flwr.cli.build import build_fab_from_files

    return build_fab_from_files({"pyproject.toml": pyproject.encode()})[0]


def bundle_digest() -> str:
    """Return the SHA-256 of this version's bundle."""
    return hashlib.sha256(build_bundle(bundle_file())).hexdigest()


# --- The check of bundles at a site


class NotAgreed(Exception):
    """A bundle that the site has not agreed to."""


def run_client_app(agreed: frozenset[str]) -> None:
    """Run Flower's ClientApp process; it unpacks no bundle whose SHA-256 is not in `agreed`."""
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp

    require_flower()
    module: Any = import_module(CLIENT_APP_MODULE)
    if not hasattr(module, UNPACK):
        raise SystemExit(f"{CLIENT_APP_MODULE} has no {UNPACK} by which bundles are checked: nothing is run")
    setattr(module, UNPACK, guarded(getattr(module, UNPACK), agreed))
    flwr_clientapp()


def guarded(unpack: Callable[..., Any], agreed: frozenset[str]) -> Callable[..., Any]:
    """Return Flower's function that unpacks a bundle, changed to refuse bundles that are not agreed to."""

    def check(content: bytes, *arguments: Any, **options: Any) -> Any:
        found = hashlib.sha256(content).hexdigest()
        if found not in agreed:
            raise NotAgreed(f"this site has not agreed to the bundle {found}")
        return unpack(content, *arguments, **options)

    return check


# --- Replies, fetched within a bound


class TooLarge(Exception):
    """A reply is larger than it may be."""


class TooLate(Exception):
    """The time is over."""


def pull(grid: Grid, message: str, limit: int, until: float) -> Message | None:
    """Return the reply to one message, or none if there is none yet.

    The reply may have `limit` bytes; fetching ends at `until` (`time.monotonic`). Flower itself has no bound:
    it waits minutes for a reply that was announced and is never uploaded, and a reply of any size, or a small
    one that names one piece ten thousand times, fills the memory.
    """
    bounded: Any = copy.copy(grid)
    bounded._client = BoundedClient(bounded._runtime_client, limit, until)
    replies = list(bounded.pull_messages([message]))
    return replies[0] if replies else None


class BoundedClient:
    """Flower's client of the SuperLink; it stops fetching objects at a bound."""

    def __init__(self, client: Any, limit: int, until: float) -> None:
        from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE

        self._client, self._left, self._until = client, limit + OVERHEAD, until
        self._most_pieces = max(1, math.ceil(limit / FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def PullObject(self, request: Any) -> Any:
        """Fetch one object."""
        if time.monotonic() >= self._until:
            raise TooLate
        response = self._client.PullObject(request)
        self._left -= len(response.object_content)
        if self._left < 0 or count_pieces(response.object_content) > self._most_pieces:
            raise TooLarge
        return response


def count_pieces(content: bytes) -> int:
    """Return how many pieces an object claims to consist of, counting repeated ones."""
    head, _, body = content.partition(b"\x00")
    if not head.startswith(b"Array "):
        return 0
    try:
        return len(json.loads(body)["arraychunk_ids"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0


def is_connection_error(error: Exception) -> bool:
    """Return whether an error is about reaching the SuperLink, and not about what a client sent."""
    import httpx

    return isinstance(error, httpx.HTTPError)
