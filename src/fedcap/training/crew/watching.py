"""Noticing workers that somebody has stopped (SIGSTOP, a debugger's "kill -STOP", a batch system).

A stopped process is told from a slow one by its state, as the kernel shows it: a worker that computes, waits
for a disk or for a core is never taken for a stopped one, however long that lasts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

PATIENCE = 30.0
"""Seconds for which a worker may be stopped before it is replaced."""
LOOKS = 10
"""How often it must be seen stopped in that time. Looks that are missed since this process is stopped too, as
after Ctrl-Z, do not count."""


class Watch:
    """Looks at processes every so often, and remembers how many looks in a row each has been stopped for."""

    def __init__(self) -> None:
        self.patience = PATIENCE
        self._every = PATIENCE / LOOKS
        self._next = time.monotonic() + self._every
        self._seen: dict[int, int] = {}

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self._next - time.monotonic())

    def stopped(self, processes: Iterable[int]) -> set[int]:
        """Return which of the processes, given by their ids, have been stopped for too long."""
        if time.monotonic() < self._next:
            return set()
        self._next = time.monotonic() + self._every
        self._seen = {
            process: self._seen.get(process, 0) + 1 for process in processes if _is_stopped(process)
        }
        return {process for process, looks in self._seen.items() if looks > LOOKS}


def _is_stopped(process: int) -> bool:
    """Whether a process is stopped by a signal; one that is gone, or held by a debugger, is not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state == "T"
