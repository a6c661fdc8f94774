"""The one supervisor of the federation's programs: Flower's, nginx, and fedcap's own.

A program gets its own process group, writes to a log, and ends with the process that started it, even after
SIGKILL. It is reaped only after its whole group was ended, so that no signal reaches a process id that was
given to another process. Flower's telemetry and update checks are off, and its files are in the directory of
the operator or the site.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Self

from fedcap.federation.flower.compat import OFFLINE

LAUNCH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Replaces itself by a program that gets SIGTERM when the thread that started it ends."""
LOOK = 0.3
"""Seconds between two looks at a program."""


def program(name: str) -> str:
    """Return the path of one of Flower's programs, next to the Python that runs this."""
    return str(Path(sys.executable).parent / name)


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment for Flower's programs; `home` is the folder of Flower's files."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), inherited.get("PATH", "")])
    return inherited | {"PATH": path, "FLWR_HOME": str(home.absolute())} | OFFLINE | more


def free_port() -> int:
    """Return a port of the loopback interface on which no program listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    """Return whether a program listens on a port of the loopback interface."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Program:
    """A running program; its output is appended to a log. Start it from a thread that lives as long."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self._start = log.stat().st_size if log.exists() else 0
        launch = [sys.executable, "-I", "-S", "-c", LAUNCH, str(os.getpid())]
        with open(log, "ab") as out:
            self._process = subprocess.Popen(
                [*launch, *command],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the program runs."""
        if self._process.returncode is not None:
            return False
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    @property
    def exit_code(self) -> int | None:
        """The program's exit code, once it was stopped."""
        return self._process.returncode

    def output(self) -> str:
        """Return what the program has written since it started."""
        with open(self.log, "rb") as file:
            file.seek(self._start)
            return file.read().decode(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal to the program if it runs."""
        if self.is_running:
            os.kill(self.pid, number)

    def stop(self, seconds: float = 10) -> None:
        """End the program and its children: by SIGTERM, and after some seconds by SIGKILL."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while self.is_running and time.monotonic() < deadline:
            time.sleep(0.02)
        self.kill()

    def kill(self) -> None:
        """End the program and its children at once."""
        if self._process.returncode is None:  # not reaped, so the group's id is still the program's
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def supervise(
    start: Callable[[], AbstractContextManager[Program]],
    attend: Callable[[Program], bool],
    ended: Callable[[Program], None],
    stop: threading.Event,
    pause: float = 0.0,
) -> None:
    """Keep a program running until `stop` is set or `attend` returns true; call this from the main thread.

    `attend` is called every `LOOK` seconds while the program runs, `ended` when it ended by itself. It is
    started again after `pause` seconds.
    """
    while not stop.is_set():
        with start() as running:
            while running.is_running and not stop.wait(LOOK):
                if attend(running):
                    return
            if not stop.is_set():
                ended(running)
        stop.wait(pause)


class Tail:
    """The new lines of a log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last = "no output"
        """The last line that was read."""
        self._place = path.stat().st_size if path.exists() else 0

    def read(self) -> list[str]:
        """Return the whole lines that were written since the last call."""
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            file.seek(self._place)
            new = file.read()
        new = new[: new.rfind(b"\n") + 1]
        self._place += len(new)
        lines = new.decode(errors="replace").splitlines()
        self.last = lines[-1] if lines else self.last
        return lines
