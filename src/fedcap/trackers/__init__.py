"""Trackers: they follow a run and tell other tools of it; one file each.

A tracker sees the records of rounds and nothing else, so it follows a simulation and a federation alike.
"""

from fedcap.trackers.base import Tracked, Tracker, Tracking, Words, figures, make_trackers, registry

names = registry.names
make = registry.make

__all__ = [
    "Tracked",
    "Tracker",
    "Tracking",
    "Words",
    "figures",
    "make",
    "make_trackers",
    "names",
    "registry",
]
