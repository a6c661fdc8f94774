"""Processes of ours: a Python process that runs one of our modules, with a pipe to it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any


class Child:
    """A process of one thread that runs a module, and the pipe to it. Closing the pipe ends the process.

    The module is given the number of the pipe's descriptor. Ctrl-C does not reach the process.
    """

    def __init__(self, module: str) -> None:
        ours, theirs = socket.socketpair()
        # Modules are found where this process finds them, and not first in the current directory.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with theirs, _interrupts_held_back():
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # stderr: what a user's code prints must not mix with our output
                env={**os.environ, **threads, "PYTHONPATH": path},
            )
        self.pipe = Connection(ours.detach())

    def send(self, message: Any) -> None:
        """Send a message; a dead process is noticed only when its answer is read."""
        with suppress(ConnectionError):
            self.pipe.send(message)

    def stop(self) -> int:
        """End the process, whatever it is doing; return its exit code."""
        self.pipe.close()
        self.process.kill()
        return self.process.wait()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block Ctrl-C (SIGINT); a process started meanwhile inherits the block, so it is never interrupted."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
