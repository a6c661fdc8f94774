"""Trackers follow a run and report it to other tools, one tracker per file.

A tracker gets only the records of rounds, so it follows a simulation and a federation in the same way.
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
