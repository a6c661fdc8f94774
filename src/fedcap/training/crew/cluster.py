"""A Ray cluster, joined or started on this machine; Ray is imported only when it is asked for.

Every node needs fedcap, and the modules and data that a run names, in the same versions.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Any, Self

from fedcap.errors import InputError

QUIET = ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO")
"""What Ray does not do unless the user says so: tell its makers of its use, and warn of its own future."""

KNOCK = 5.0
"""Seconds in which the head of a cluster must answer."""


def ray_module() -> Any:
    """Return the module `ray`, or say what to install."""
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError(
            "the engine ray needs Ray: pip install 'fedcap[ray]', or leave --engine out"
        ) from None
    return ray


class RayCluster:
    """A connection to a Ray cluster, for as long as it is open.

    `address` is that of the cluster's head, `HOST:PORT`, or "auto" for the one of this machine. Without one,
    a cluster of this machine's cores is started, and ended with the connection. A connection that the
    program has made already is used, and left as it is.
    """

    def __init__(self, address: str | None = None) -> None:
        self.ray = ray_module()
        self._ours = not self.ray.is_initialized()
        if not self._ours:
            return
        for name in QUIET:
            os.environ.setdefault(name, "0")
        own = {"include_dashboard": False} if address is None else {}
        try:
            _knock(address)
            self.ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **own)
        except (OSError, RuntimeError, ValueError) as error:
            said = " ".join(str(error).split()).rstrip(".")
            raise InputError(
                f"no Ray cluster at {address or 'this machine'} ({said}):"
                " start one with ray start --head, and give the address that it prints"
            ) from None

    def cores(self) -> int:
        """Return how many cores the cluster's nodes have together."""
        return int(self.ray.cluster_resources().get("CPU", 0))

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here."""
        if self._ours and self.ray.is_initialized():
            self.ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _knock(address: str | None) -> None:
    """Raise an error if nobody answers at `HOST:PORT`: Ray itself would try for many minutes."""
    host, _, port = (address or "").rpartition(":")
    if address in (None, "auto", "local") or "://" in host:
        return
    if not host or not port.isdecimal():
        raise ValueError("an address is HOST:PORT, or auto")
    socket.create_connection((host, int(port)), timeout=KNOCK).close()
