"""Engines: what plays the cells of a grid, on the cores of this machine or on a cluster."""

from __future__ import annotations

from fedcap.errors import InputError, nearest
from fedcap.experiments.engines.base import Engine
from fedcap.experiments.engines.local import LocalEngine

NAMES = ("local", "ray")


def make_engine(
    name: str = "local", jobs: int | None = None, nice: bool = False, address: str | None = None
) -> Engine:
    """Return an engine by its name; jobs and niceness are the local one's, the address is Ray's."""
    if name not in NAMES:
        raise InputError(f"unknown engine {name!r}: {nearest(name, NAMES)}")
    if name == "ray":
        if jobs is not None or nice:
            raise InputError("--jobs and --nice go with the local engine: a Ray cluster has its own slots")
        from fedcap.experiments.engines.ray import RayEngine

        return RayEngine(address)
    if address is not None:
        raise InputError("--address goes with --engine ray")
    return LocalEngine(jobs, nice)
