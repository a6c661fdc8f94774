"""Many clients' jobs: in this process, in worker processes of one thread each, or on a Ray cluster.

All crews run the same `Bench.perform` on one thread, so a result has the same bits whichever did it.
"""

from __future__ import annotations

import logging
import os
from functools import cache
from typing import Literal

from fedcap.errors import InputError
from fedcap.training.workers.base import Crew, Outcome, SoloCrew, WorkerError, single_thread
from fedcap.training.workers.processes import ProcessCrew

__all__ = [
    "Crew",
    "Outcome",
    "ProcessCrew",
    "SoloCrew",
    "WorkerError",
    "available_cores",
    "make_crew",
    "single_thread",
]


def make_crew(
    workers: int | None = None,
    device: str = "cpu",
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
) -> Crew:
    """Return a crew of that many workers, by default one per core, and never more than there are cores.

    On devices other than the CPU, clients are trained one after the other in this process. With the engine
    "ray", workers are those of a Ray cluster: the one at `address`, or one of this machine's cores.
    """
    if engine == "ray":
        if device != "cpu":
            raise InputError(
                f"the engine ray trains on processors, not on {device!r}: leave one of them out",
                code="bad-value",
                field="device",
            )
        from fedcap.training.workers.ray import RayCrew

        return RayCrew(workers, address)
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
        _tell(f"{workers} workers asked for, {have} here: one worker per core is used")
        workers = cores
    shared = workers > 1 and device == "cpu" and hasattr(os, "memfd_create")
    return ProcessCrew(workers) if shared else SoloCrew()


def available_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _tell(note: str) -> None:
    """Log what the user should know, once."""
    logging.getLogger("fedcap").warning(note)
