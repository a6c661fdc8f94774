"""Worker pools: many clients' tasks in this process, in local worker processes, or on a Ray cluster.

Every pool runs the same `TaskRunner.run` on one thread, so results have the same bits in all of them.
"""

from __future__ import annotations

import os
from typing import Literal

from fedcap.errors import InputError, warn_once
from fedcap.training.workers.base import InProcessPool, TaskResults, WorkerError, WorkerPool, single_thread
from fedcap.training.workers.processes import ProcessPool

__all__ = [
    "InProcessPool",
    "ProcessPool",
    "TaskResults",
    "WorkerError",
    "WorkerPool",
    "available_cores",
    "make_pool",
    "single_thread",
]


def make_pool(
    workers: int | None = None,
    device: str = "cpu",
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
) -> WorkerPool:
    """Return a pool with this number of workers: by default one per core, and never more than cores.

    On devices other than the CPU, tasks run one after the other in this process. With the engine "ray", the
    workers are actors on a Ray cluster: the one at `address`, or one started here with this machine's cores.
    """
    if engine == "ray":
        if device != "cpu":
            raise InputError(
                f"the engine ray trains on processors, not on {device!r}: leave one of them out",
                code="bad-value",
                field="device",
            )
        from fedcap.training.workers.ray import RayPool

        return RayPool(workers, address)
    if engine != "local":
        raise InputError(
            f"engine should be 'local' or 'ray' (got {engine!r})", code="unknown-name", field="engine"
        )
    if address is not None:
        raise InputError(
            f"the address {address} is a Ray cluster's, and the engine is not ray",
            code="bad-value",
            field="address",
        )
    cores = available_cores()
    if workers is None:
        workers = cores
    if workers < 1:
        raise InputError(
            f"workers should be greater than or equal to 1 (got {workers})", code="bad-value", field="workers"
        )
    if workers > cores:
        have = f"{cores} core{'s' * (cores > 1)}"
        warn_once(f"{workers} workers asked for, {have} here: one worker per core is used")
        workers = cores
    use_processes = workers > 1 and device == "cpu" and hasattr(os, "memfd_create")
    return ProcessPool(workers) if use_processes else InProcessPool()


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
