"""Flower's programs as children of ours: their environment, their logs, and their end with ours.

Every child has a process group of its own and dies with the process that started it, even by SIGKILL.
Flower's telemetry and its look for updates are off, and what it keeps lies in a folder of ours.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

PARENT_DIED = 1
"""Linux's PR_SET_PDEATHSIG."""
OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
}
"""Flower talks to nobody but the federation, installs nothing, and looks for work five times a second."""


def program(name: str) -> str:
    """Return the path of one of Flower's programs, beside the Python that runs this."""
    return str(Path(sys.executable).parent / name)


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment for Flower's programs; `home` is where Flower keeps what it keeps."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), own.get("PATH", "")])
    return own | {"PATH": path, "FLWR_HOME": str(home.absolute())} | OFFLINE | more


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(port: int) -> bool:
    """Return whether somebody listens on a port of the loopback interface."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Child:
    """A program that runs until it is stopped; what it says is appended to a file."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.start = log.stat().st_size if log.exists() else 0
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                command,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    @property
    def running(self) -> bool:
        """Whether the program runs."""
        return self.process.poll() is None

    def said(self) -> str:
        """Return what the program has said since it started."""
        with open(self.log, "rb") as file:
            file.seek(self.start)
            return file.read().decode(errors="replace")

    def stop(self, seconds: float = 10) -> None:
        """End the program and what it started: by SIGTERM, and by SIGKILL for whoever is still there then."""
        if self.running:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End the program and what it started, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Tail:
    """A log that grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last = "it said nothing"
        """The last line that was read."""
        self._place = path.stat().st_size if path.exists() else 0

    def read(self) -> list[str]:
        """Return the whole lines that are new."""
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


_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    _libc.prctl(PARENT_DIED, signal.SIGTERM)
