"""What `Experiment.run` is given, checked before anything starts: a mistake is one line."""

from __future__ import annotations

import os
from typing import Any

from fedcap.errors import InputError
from fedcap.runs import RunDirectory
from fedcap.trackers import Tracker
from fedcap.training import Crew

WATCHES = ("started", "round_done", "finished")
"""What an observer must have: see `observer.Observer`."""


def check_run(out: Any, crew: Any, observers: Any) -> None:
    """Refuse what is no directory, no crew, or no list of observers."""
    if out is not None and not isinstance(out, str | os.PathLike | RunDirectory):
        raise InputError(f"out should be the path of a directory, or None to keep no records (got {out!r})")
    if isinstance(out, str) and not out:
        raise InputError("out is empty: give the path of a directory, or None to keep no records")
    if crew is not None and not isinstance(crew, Crew):
        raise InputError(f"crew should be made by fedcap.simulation.make_crew, or be None (got {crew!r})")
    if not isinstance(observers, list | tuple):
        raise InputError(f"observers should be a list, [] for none (got {observers!r})")
    for observer in observers:
        lacking = [name for name in WATCHES if not callable(getattr(observer, name, None))]
        if isinstance(observer, type) or (lacking and not isinstance(observer, Tracker)):
            what = "is a class, not an object" if isinstance(observer, type) else f"has no {lacking[0]}()"
            raise InputError(
                f"observer {observer!r} {what}: an observer has the methods {', '.join(WATCHES)}"
            )
