"""For tests on a Ray cluster: its nodes can import what is here."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedcap.methods.fedavg import FedAvg

NOTICED_SOON = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 10000,
    "health_check_failure_threshold": 3,
}
"""The head checks its nodes twice a second: a killed node is noticed soon, a slow one has time."""
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}


class Nodes:
    """A Ray cluster on this machine: a head, and a second node that can be killed; each has one core."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {**NODE, "include_dashboard": False, "_system_config": NOTICED_SOON}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address
        self._second: Any = None

    def add(self) -> None:
        """Start the second node, and wait until it is ready."""
        self._second = self._cluster.add_node(**NODE)

    def kill(self) -> None:
        """Kill the second node's processes at once, as a power failure does."""
        if self._second is not None:
            (raylet,) = self._second.all_processes["raylet"]
            workers = children(raylet.process.pid)
            self._cluster.remove_node(self._second, allow_graceful=False)
            for worker in workers:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            self._second = None

    def close(self) -> None:
        self._cluster.shutdown()


def children(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


@dataclass(frozen=True)
class Patient(FedAvg):
    """FedAvg whose server ends no round before a file exists."""

    file: str = ""

    def update(self, state: Any, sent: Any, view: Any, verdict: Any) -> Any:
        deadline = time.monotonic() + 100
        while self.file and not Path(self.file).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return super().update(state, sent, view, verdict)


@dataclass(frozen=True)
class Broken(FedAvg):
    """FedAvg whose server breaks down."""

    def update(self, state: Any, sent: Any, view: Any, verdict: Any) -> Any:
        raise ArithmeticError("the server broke down")
